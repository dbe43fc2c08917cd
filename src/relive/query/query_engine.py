"""The query interface of a home: the wide table, and SQL over the index."""

from __future__ import annotations

import difflib
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relive.errors import QueryError
from relive.query.context_selection import IterationContext, select_contexts
from relive.query.sql import Result, columns_of, filter_table, is_text, run, sql_views
from relive.query.table import FIXED_DIMS, PROCESS_DIMS, RunFacts, Table, pivot, to_pandas
from relive.store import Home
from relive.store.catalog import REPLAY_CHOICES, Index, RunEntry
from relive.store.chunks import Chunks
from relive.store.journal import decode_or_describe

if TYPE_CHECKING:
    import pandas

RANKS = ("canonical", "all")
_BRIEF_DIMS = ("run", "tstamp")


class QueryEngine:
    """Queries over the runs of a home, in their state at the first query."""

    def __init__(self, home: Home | Path) -> None:
        original = home if isinstance(home, Home) else Home(home)
        self._home = original if is_text(original.path) else Home(self._utf8_link(original.path), original.settings)
        self._index = Index(self._home)
        self._chunks = Chunks(self._home.chunks)

    def _utf8_link(self, home: Path) -> Path:
        """Creates a symbolic link to the home, since DuckDB accepts only paths that are valid UTF-8."""
        import tempfile

        folder = tempfile.TemporaryDirectory(prefix="relive-", ignore_cleanup_errors=True)
        weakref.finalize(self, folder.cleanup)
        link = Path(folder.name) / "home"
        link.symlink_to(home.absolute())
        return link

    def dataframe(self, names: Sequence[str], *, where: str | None, ranks: str, **which: Any) -> pandas.DataFrame:
        """Returns the wide table as a pandas DataFrame; `which` as in `table`.

        Next to names, of the facts of a run its id and time are columns, and those others that are among the names.
        """
        hidden = {*FIXED_DIMS} - {*_BRIEF_DIMS, *names} if names else set()
        return to_pandas(self.table(names, where=where, ranks=ranks, **which).without(hidden))

    def table(
        self, names: Sequence[str], *, where: str | None = None, ranks: str = "canonical", replays: str = "latest",
        sources: bool = False, contradicted: bool = False,
    ) -> Table:  # fmt: skip
        """Returns a table with a column per name and the rows for which `where` holds; it may use further names.

        A name has a column of verdicts if some of its values are unverified or contradicted. Contradicted values are
        included only on request.
        """
        if ranks not in RANKS:
            raise QueryError(f"ranks={ranks!r} is not known; use {' or '.join(map(repr, RANKS))}")
        if replays not in REPLAY_CHOICES:
            raise QueryError(f"replays={replays!r} is not known; use {' or '.join(map(repr, REPLAY_CHOICES))}")
        names = [name for name in names if name not in FIXED_DIMS or name in self._known_names]  # all facts are columns
        self._check_names(names)
        filters = [name for column in (columns_of(where) if where else []) for name in self._names_like(column)]
        all_names = list(dict.fromkeys([*names, *filters]))
        table = self._wide(
            all_names, all_ranks=ranks == "all", replays=replays, sources=sources, contradicted=contradicted
        )  # fmt: skip
        if where is not None:
            table = filter_table(table, where, self._find_loop_variables)
        hidden = {name for name in filters if name not in names}
        beside = {f"{name}_source" for name in hidden} | {table.verdicts[name] for name in hidden & {*table.verdicts}}
        return table.without(hidden | beside).with_verdicts_counted()

    def select(self, contexts: Sequence[IterationContext], where: str) -> list[int]:
        """Returns the positions of the iterations for which `where` holds."""
        names = [name for column in columns_of(where) for name in self._names_like(column)]
        points = self._index.points(self._entries, names)
        facts = [self._facts(entry) for entry in self._entries]
        return select_contexts(
            points, names, facts, contexts, where, get_chunk=self._chunks.get, aliases=self._find_loop_variables
        )

    def sql(self, text: str) -> Result:
        """Runs one SELECT over runs, args, logs, loops, checkpoints and frame('a', 'b')."""
        relations = sql_views.relations(self._index, self._entries)
        frame = self._frame
        return run(
            text, relations=relations, frame=frame, allowed=[self._index.segments], known_columns=self._known_names
        )

    def _frame(self, names: Sequence[str]) -> Table:
        self._check_names(names)
        return self._wide(names, all_ranks=False).with_verdicts_counted()

    def _wide(
        self, names: Sequence[str], *, all_ranks: bool, replays: str = "latest", sources: bool = False,
        contradicted: bool = False,
    ) -> Table:  # fmt: skip
        points = self._index.points(
            self._entries, names, all_ranks=all_ranks, replays=replays, contradicted=contradicted
        )  # fmt: skip
        facts = [self._facts(entry) for entry in self._entries]
        return pivot(
            points, names, facts, get_chunk=self._chunks.get, with_rank=all_ranks, with_sources=sources,
            has_happened=self._index.has_happened,
        )  # fmt: skip

    def _facts(self, entry: RunEntry) -> RunFacts:
        record = entry.record
        args = {name: decode_or_describe(arg["value"], self._chunks.get) for name, arg in record.config["args"].items()}
        return RunFacts(record.run, record.project, record.started_us, record.version, record.filename, args)

    @cached_property
    def _entries(self) -> list[RunEntry]:
        return self._index.runs()

    @cached_property
    def _known_names(self) -> list[str]:
        args = {name for entry in self._entries for name in entry.record.config["args"]}
        return sorted(args.union(self._index.names(self._entries)))

    def _find_loop_variables(self) -> dict[str, str]:
        from relive.query.loop_variables import find_loop_variables

        return find_loop_variables([entry.record for entry in self._entries])

    def _names_like(self, column: str) -> list[str]:
        """Returns the names that a column of a where clause may refer to; SQL is case-insensitive."""
        if column in self._known_names:
            return [column]
        taken = (*FIXED_DIMS, *PROCESS_DIMS)
        return [name for name in self._known_names if name.lower() == column.lower() and column.lower() not in taken]

    def _check_names(self, names: Sequence[str]) -> None:
        known: Any = set(self._known_names)
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, self._known_names, n=3)
                hint = f"did you mean {' or '.join(near)}? " if near else ""
                listed = ", ".join(self._known_names[:30]) or "none yet"
                raise QueryError(f"no run has {name!r}; {hint}known names are {listed}")
