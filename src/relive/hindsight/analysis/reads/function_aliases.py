"""Under which other names the functions of a project are called: variables, attributes and results that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relive.hindsight.analysis.reads.expression_reads import ExpressionReads, FileScopes

Aliases = Mapping[str, frozenset[str]]


def called_functions(call: str, aliases: Aliases) -> list[str]:
    """Returns the simple names of the functions that a dotted name may call; `table.key` may be one in the table."""
    parts = call.split(".")
    return [parts[-1], *sorted({name for part in parts for name in aliases.get(part, ())})]


def find_aliases(files: Sequence[FileScopes]) -> Aliases:
    """Returns the functions that a name may stand for, by the last part of the name: `ask` for `self.ask = report`.

    A function also stands for those that it returns, so `turn, ask = make()` gives `ask` whatever `make` returns.
    """
    functions = {scope.simple_name for file in files for scope in file.scopes if scope.name}
    found: dict[str, set[str]] = {}

    def held_by(reads: ExpressionReads) -> set[str]:
        """The functions that the value of an expression may be or hold: mentioned, or returned by what it calls."""
        mentioned = {chain[-1] for chain in reads.chains}
        names = mentioned & functions
        for name in {*mentioned, *(call.rpartition(".")[2] for call in reads.calls)}:
            names |= found.get(name, set())
        return names

    def add(name: str, names: set[str]) -> bool:
        new = names - {name} - found.get(name, set())
        if new:
            found.setdefault(name, set()).update(new)
        return bool(new)

    is_more = True
    while is_more:  # each round adds a function to a name, of which there are so many
        is_more = False
        for scope in (scope for file in files for scope in file.scopes):
            for targets, reads in scope.assigned:
                held = held_by(reads)
                is_more |= bool(sum(add(target[-1], held) for target in targets))
            if scope.name:
                for reads in scope.returned:
                    is_more |= add(scope.simple_name, held_by(reads))
    return {name: frozenset(names) for name, names in found.items()}
