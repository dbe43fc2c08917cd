"""What the code of a version says about values: what statements read, which state the loops use, what is volatile."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath

from relive.checkpoint.analysis import has_volatile_name
from relive.hindsight.analysis.depth import AddedStatement
from relive.hindsight.analysis.program import read_program
from relive.hindsight.analysis.reads.expression_reads import Chain, ExpressionReads, FileScopes, Scope, read_scopes
from relive.hindsight.analysis.reads.function_aliases import Aliases, called_functions, find_aliases
from relive.hindsight.analysis.reads.own_code import SELF_SEEDING, OwnCode, find_own_code
from relive.hindsight.analysis.reads.set_order import SET_ORDER
from relive.hindsight.analysis.reads.volatile_calls import GROWING_METHODS, ORDER, VolatileFlow, any_volatile
from relive.instrument import reachable_files
from relive.record.provenance import named_in

NO_FILES: Mapping[str, str | None] = {}
ReadFile = Callable[[str], str | None]
_PATH_PART = re.compile(r"\w+")
_STATEMENT_LINES = 20  # that a log statement may span
_READER = re.compile(r"(^|\.)(open|load\w*|read\w*|imread|fromfile|memmap|listdir|scandir|i?r?glob|stat|getsize)$")
_ENVIRONMENT = re.compile(r"\b(environb?|getenvb?)\b")
_SEED = re.compile(
    r"(^|\.)(seed|manual_seed|manual_seed_all|seed_all|set_seed|seed_everything|set_random_seed|PRNGKey|RandomState|"
    r"default_rng)$"
)


class CodeFacts:
    """Facts about the patched source of a version, each computed when it is first needed.

    `read` returns the text of a file, if there is one. `mains` are the names of the main loops, as the source has
    them; `is_instrumented`: the source has no loops of relive, instrumentation chooses them. `unrecorded`: environment
    variables whose values in the run are not known; `has_hash_seed`: sets have the order that they had in the run.
    `originals`: the files that something was added to, as they were.
    """

    def __init__(
        self, read: ReadFile, entry: str, *, added: Sequence[AddedStatement] = (), mains: Collection[str] = (),
        is_instrumented: bool = False, unrecorded: Collection[str] = (), has_hash_seed: bool = True,
        originals: Mapping[str, str | None] = NO_FILES,
    ) -> None:  # fmt: skip
        self._read = read
        self._entry = entry
        self._added = added
        self._mains = mains
        self._is_instrumented = is_instrumented
        self._unrecorded = unrecorded
        self._has_hash_seed = has_hash_seed
        self._originals = originals

    # --- what the added statements read -------------------------------------------------------------------------

    def volatile_source(self, name: str) -> str | None:
        """Returns what the added statements of a name read besides the state: `reads the clock (time.time)`."""
        found = (
            self._flow.label(file, scope, reads, is_own=True) for file, scope, reads in self._statements_of(name)
        )  # fmt: skip
        labels = (label for label in found if label and not (label == ORDER and self._has_hash_seed))
        own = self._own_code.label(has_hash_seed=self._has_hash_seed) if self.reads_added(name) else None
        return next(labels, None) or self._unrecorded_variable(name) or own

    def reads_added(self, name: str) -> bool:
        """Whether an added statement of this name reads what other added code has made: no record has that."""
        own = self._own_code.names
        return bool(own) and any(
            not own.isdisjoint(
                (
                    *(chain[0] for chain in scope.sources_of(reads.chains)),
                    *(one.partition(".")[0] for one in reads.calls),
                )
            )
            for _, scope, reads in self._statements_of(name)
        )

    @cached_property
    def _own_code(self) -> OwnCode:
        texts = [(old, self._read(file)) for file, old in self._originals.items()]
        statements = {one.line for one in self._added}
        return find_own_code([(old or "", new) for old, new in texts if new is not None], statements)

    def _unrecorded_variable(self, name: str) -> str | None:
        """Returns the environment variable that an added statement of a name reads, if the run's value is not known."""
        for one in self._added:
            if one.name == name:
                lines = (self._read(one.file) or "").splitlines()[one.line - 1 : one.line - 1 + _STATEMENT_LINES]
                statement = "\n".join(lines[: _statement_length(lines)])
                if _ENVIRONMENT.search(statement) and (named := sorted(named_in(statement) & {*self._unrecorded})):
                    return f"reads the environment variable {named[0]}, which was not recorded"
        return None

    def reads_directly(self, name: str, path: str) -> bool:
        """Whether an added statement of this name reads the object at a path, or one that holds it or is part of it."""
        return any(
            _overlap(chain, other)
            for file, _, reads in self._statements_of(name)
            for chain in reads.chains | self._read_by_calls(file, reads.calls)
            for other in self._chains_of(path)
        )

    def reads_by_flow(self, name: str, path: str) -> bool:
        """Whether what an added statement reads was computed, in the same function, from the object at a path."""
        for file, scope, reads in self._statements_of(name):
            own = {chain[0] for chain in reads.chains}  # those are read directly, or not at all
            sources = {chain for chain in scope.sources_of(reads.chains) if chain[0] not in own}
            called = self._read_by_calls(file, {chain[0] for chain in sources if len(chain) == 1})
            if any(_overlap(chain, other) for chain in sources | called for other in self._chains_of(path)):
                return True
        return False

    def _read_by_calls(self, file: FileScopes, calls: Collection[str]) -> frozenset[Chain]:
        """Returns the variables of modules that functions of the project read, and those that these call."""
        found: set[Chain] = set()
        left, seen = [(file, call) for call in calls], set()
        while left:
            caller, call = left.pop()
            name, *others = called_functions(caller.resolve(call), self._aliases)
            left += [(caller, other) for other in others if other not in seen]
            if name in seen:
                continue
            seen.add(name)
            for owner, scope in self._functions.get(name, ()):
                own = {*scope.parameters, *(target[0] for targets, _ in scope.assigned for target in targets)}
                own -= scope.global_names
                found |= {chain for _, chain in scope.loads if chain[0] not in own}
                left += [(owner, called) for _, called in scope.called if called]
        return frozenset(found)

    def is_changed_by_statement(self, path: str) -> bool:
        """Whether an added statement may itself change the object at a path: by functions of the project it calls."""
        parts = _PATH_PART.findall(path.partition(": ")[0])
        is_hook = self._own_code.has_callbacks and any("hooks" in part for part in parts)
        return is_hook or not self._changed_by_statements.isdisjoint(parts)

    @cached_property
    def _changed_by_statements(self) -> frozenset[str]:
        """The attributes and variables of modules that functions set which the added statements call.

        A cached property is an attribute with the name of its function.
        """
        found: set[str] = set()
        left = [
            name
            for one in {one.name for one in self._added}
            for _, _, reads in self._statements_of(one)
            for name in (*reads.calls, *(part for chain in reads.chains for part in chain[1:]))
        ]
        seen: set[str] = set()
        while left:
            name, *others = called_functions(left.pop(), self._aliases)
            left += [other for other in others if other not in seen]
            if name in seen:
                continue
            seen.add(name)
            for _, scope in self._functions.get(name, ()):
                found |= {name, *_attributes_set(scope)}
                left += [called for _, called in scope.called]
        return frozenset(found)

    @cached_property
    def _functions(self) -> dict[str, list[tuple[FileScopes, Scope]]]:
        """The functions of the project by their names; methods too, since their objects are not known."""
        found: dict[str, list[tuple[FileScopes, Scope]]] = {}
        for file in self._scopes:
            for scope in file.scopes:
                if scope.name:
                    found.setdefault(scope.simple_name, []).append((file, scope))
        return found

    @cached_property
    def _aliases(self) -> Aliases:
        return find_aliases(self._scopes)

    def reads_files(self, name: str) -> bool:
        """Whether an added statement of this name calls something that reads files, by the name of the function."""
        return any(_READER.search(call) for _, _, reads in self._statements_of(name) for call in reads.calls)

    def _statements_of(self, name: str) -> Iterator[tuple[FileScopes, Scope, ExpressionReads]]:
        """The expressions that the added statements of a name log; with an unknown name, those of all statements."""
        added = [one for one in self._added if one.name == name] or self._added
        for file in self._scopes:
            lines = sorted({one.line for one in added if one.file == file.file})
            logged = [one for one in file.logged.get(name, []) if _is_near(one[1], lines)]
            if logged:
                yield from ((file, scope, reads) for scope, _, reads in logged)
                continue
            for scope in file.scopes:  # a name that is computed: whatever those lines read
                chains = frozenset(chain for line, chain in scope.loads if line in lines)
                calls = frozenset(function for line, function in scope.called if line in lines)
                if chains or calls:
                    yield file, scope, ExpressionReads(chains, calls, chains, calls)

    # --- what the recorded code does ----------------------------------------------------------------------------

    def is_volatile(self, name: str) -> bool:
        """Whether the values of a recorded name depend on the clock or the machine, by its name or its statement."""
        if has_volatile_name(name) or name.casefold() in self._volatile_labels:
            return True
        return any(
            self._flow.label(file, scope, reads) or (SET_ORDER in reads.flowing_calls and not self._has_hash_seed)
            for file in self._scopes
            for scope, _, reads in file.logged.get(name, [])
        )

    @cached_property
    def _volatile_labels(self) -> frozenset[str]:
        """The names that meters of durations have in what they print: `Data` of `data_time = Meter("Data")`."""
        labels = (label for file in self._scopes for scope in file.scopes for label in scope.labelled)
        return frozenset(text.casefold() for chain, text in labels if self._flow.holds(chain))

    def is_volatile_path(self, path: str) -> bool:
        """Whether the state at a path is a time or the like: it differs each time."""
        chains = self._chains_of(path)
        return any(self._flow.holds(chain) for chain in chains) or self._is_time_of_library(chains[-1])

    def _is_time_of_library(self, chain: Chain) -> bool:
        """Whether the last attribute has a name of times, and none that the source mentions."""
        last = chain[-1]
        return len(chain) > 1 and has_volatile_name(last) and not any(last in load for load in self._all_loads)

    @cached_property
    def _all_loads(self) -> frozenset[str]:
        return frozenset(part for file in self._scopes for scope in file.scopes for _, c in scope.loads for part in c)

    def is_used(self, path: str) -> bool:
        """Whether the code that runs in or after the main loops may use the object at a path.

        True if the source does not have its name: it may be reached in a way that the source does not show.
        """
        chains = self._chains_of(path)
        if not any(chain[0] in file.bound for chain in chains for file in self._scopes):
            return True
        return any(_overlap(loaded, chain) for chain in chains for loaded in self._loads)

    @cached_property
    def is_seeded(self) -> bool:
        """Whether the script seeds a random generator."""
        return any(_SEED.search(file.resolve(call)) for file in self._scopes for call in file.all_calls)

    @cached_property
    def may_draw(self) -> bool:
        """Whether the script imports anything besides Python's own modules, or `random`: it may draw random numbers."""
        roots = {name.partition(".")[0] for file in self._scopes for name in file.imported.values()}
        return bool(roots - (sys.stdlib_module_names - {"random"}) - {"relive"})

    @cached_property
    def has_own_seeds(self) -> bool:
        """Whether the script makes a generator that seeds itself from the system: another one in every process."""
        return any(SELF_SEEDING.search(file.resolve(call)) for file in self._scopes for call in file.bare_calls)

    def _chains_of(self, path: str) -> list[Chain]:
        """The chains by which the source may name a path; it may begin with names of modules, classes and functions."""
        parts = tuple(_PATH_PART.findall(path.partition(": ")[0])) or ("",)
        found = [parts]
        while len(found[-1]) > 1 and found[-1][0] in self._owners:
            found.append(found[-1][1:])
        return found

    @cached_property
    def _owners(self) -> frozenset[str]:
        """The names of modules, classes and functions, with which the paths of their variables begin."""
        modules = (PurePosixPath(file.file).stem for file in self._scopes)
        scopes = (part for file in self._scopes for scope in file.scopes for part in scope.name.split("."))
        return frozenset({"__main__", *modules, *scopes})

    # --- reading ------------------------------------------------------------------------------------------------

    @cached_property
    def _scopes(self) -> list[FileScopes]:
        """The scopes of the files that the script imports, directly or not."""
        texts = dict(reachable_files(self._entry, self._read))
        added = {one.file: self._read(one.file) for one in self._added if one.file not in texts}
        texts |= {file: text for file, text in added.items() if text is not None}
        found = (read_scopes(file, text) for file, text in texts.items())
        return [scopes for scopes in found if scopes is not None]

    @cached_property
    def _flow(self) -> VolatileFlow:
        return VolatileFlow(self._scopes if any_volatile(self._scopes) else [], self._aliases)

    @cached_property
    def _loads(self) -> frozenset[Chain]:
        """Everything that is read, except by code that only runs before the main loops.

        A variable of an inner loop is bound anew before it is read: what it was before has no effect.
        """
        read = {file.file: self._read(file.file) or "" for file in self._scopes}
        program = read_program(read, self._entry if self._is_instrumented else None)
        begins: dict[tuple[str, str], int] = {}
        mains: dict[str, set[int]] = {}  # file → the lines of main loops, whose variables come from the replay
        for unit in program.units:
            for site in unit.loops:
                if site.name in self._mains:
                    key = unit.file, f"{unit.owner}.{unit.name}" if unit.owner else unit.name
                    begins[key] = min(site.line, begins.get(key, site.line))
                    mains.setdefault(unit.file, set()).add(site.line)
        return frozenset(
            chain
            for file in self._scopes
            for scope in file.scopes
            for line, chain in scope.loads
            if line >= begins.get((file.file, scope.name), 0)
            and not (mains and scope.is_bound_by_loop(line, chain[0], mains.get(file.file, ())))
        )


def _attributes_set(scope: Scope) -> set[str]:
    """The attributes and global variables that a function assigns, or whose objects it fills."""
    targets = [target for targets, _ in scope.assigned for target in targets]
    filled = (tuple(called.split(".")) for _, called in scope.called)
    targets += [chain[:-1] for chain in filled if len(chain) > 1 and chain[-1] in GROWING_METHODS]
    return {target[-1] for target in targets if len(target) > 1 or target[0] in scope.global_names}


def _statement_length(lines: Sequence[str]) -> int:
    """Returns how many lines the first statement has: as many as it takes until its brackets are closed."""
    depth = 0
    for count, line in enumerate(lines, 1):
        depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        if depth <= 0:
            return count
    return len(lines)


def _overlap(one: Chain, other: Chain) -> bool:
    """Whether one chain is the other, holds it, or is a part of it."""
    return all(a == b for a, b in zip(one, other, strict=False))


def _is_near(line: int, lines: Sequence[int]) -> bool:
    """Whether a value belongs to one of the statements that begin at these lines; a statement may span several."""
    return any(0 <= line - first <= _STATEMENT_LINES for first in lines)
