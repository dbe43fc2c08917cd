"""Where questions about runs are answered: in a home, or by a server. Both give the same values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from relive.model import RUNNING, RunRecord
from relive.store.catalog import Index, Summary, find_run

if TYPE_CHECKING:  # a list of runs needs none of these, and they load numpy, or HTTP
    from relive.query.compare import LeaderboardTerms, Rule, Watched
    from relive.store.sync import ServerClient

_PAGE = 1_000  # runs in one answer of a server
_NO_NUMBER = '"no number"'  # JSON has no word for NaN, so a server gives none
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """The record of a run, and what its names come to; `folder` has its journals, if they are here."""

    record: RunRecord
    metrics: list[Summary]
    folder: Path | None = None


class RunsBackend(Protocol):
    """Some runs that can be asked about."""

    def listed(self, limit: int) -> tuple[int, list[Row]]:
        """How many there are, and the newest ones with their last values; 0 gives all."""

    def shown(self, word: str) -> Shown:
        """One of them: the beginning of its id, its name, or `last`."""

    def live(self) -> list[str]:
        """The ids of those that go on."""

    def leaderboard(self, metric: str, terms: LeaderboardTerms) -> Row: ...

    def compare(self, words: Sequence[str]) -> Row: ...

    def skew(self, word: str, name: str) -> Row: ...

    def watched(self, run: str, rule: Rule) -> Watched: ...


class HomeRuns:
    """The runs of a home."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def listed(self, limit: int) -> tuple[int, list[Row]]:
        entries = self._index.runs()[::-1]
        chosen = entries[:limit] if limit else entries
        last = self._index.summaries(chosen)
        return len(entries), [listed(entry.record, last[entry.record.run]) for entry in chosen]

    def shown(self, word: str) -> Shown:
        entry = find_run(self._index.runs(), word)
        run = entry.record.run
        return Shown(entry.record, self._index.summaries([entry])[run], self._index.home.run_folder(run))

    def live(self) -> list[str]:
        return [entry.record.run for entry in self._index.runs() if entry.live]

    def leaderboard(self, metric: str, terms: LeaderboardTerms) -> Row:
        from relive.query.compare import build_leaderboard

        return build_leaderboard(self._index, metric, terms)

    def compare(self, words: Sequence[str]) -> Row:
        from relive.query.compare import compare

        return compare(self._index, words)

    def skew(self, word: str, name: str) -> Row:
        from relive.query.compare import skew

        return skew(self._index, word, name)

    def watched(self, run: str, rule: Rule) -> Watched:
        from relive.query.compare import watched

        return watched(self._index, run, rule)


class ServerRuns:
    """The runs of a server's store, over HTTP."""

    def __init__(self, remote: ServerClient) -> None:
        self._remote = remote

    def listed(self, limit: int) -> tuple[int, list[Row]]:
        found: list[Row] = []
        while True:
            wanted = min(limit - len(found), _PAGE) if limit else _PAGE
            answer = self._get("/api/runs", limit=wanted, offset=len(found))
            found += answer["runs"]
            if not answer["runs"] or len(found) >= (limit or answer["total"]):
                return int(answer["total"]), found

    def shown(self, word: str) -> Shown:
        from relive.store.sync import ServerUnreachable

        answer = self._get(f"/api/runs/{self._meant(word)}")
        try:
            record = msgspec.convert(answer["record"], RunRecord)
        except msgspec.ValidationError as error:
            raise ServerUnreachable(f"{self._remote.url} gave a record that is not understood ({error})") from error
        return Shown(record, [_summary(told) for told in answer["metrics"]])

    def live(self) -> list[str]:
        return [run["run"] for run in self._get("/api/runs", outcome=RUNNING, limit=_PAGE)["runs"]]

    def leaderboard(self, metric: str, terms: LeaderboardTerms) -> Row:
        return self._get("/api/leaderboard", metric=metric, **_query(terms))

    def compare(self, words: Sequence[str]) -> Row:
        return self._get("/api/compare", runs=",".join(words))

    def skew(self, word: str, name: str) -> Row:
        return self._get(f"/api/runs/{self._meant(word)}/skew", name=name)

    def watched(self, run: str, rule: Rule) -> Watched:
        from relive.query.compare import Watched

        answer = self._get(f"/api/runs/{run}/alert", name=rule.name, above=rule.bound, steps=rule.steps)
        return msgspec.convert(answer, Watched)

    def _meant(self, word: str) -> str:
        return str(self._get("/api/runs", run=word)["runs"][0]["run"])

    def _get(self, path: str, **query: Any) -> Row:
        from relive.store.sync import with_remedy

        with with_remedy():
            answer: Row = self._remote.get(path, **query)
            return answer


def listed(record: RunRecord, last: Sequence[Summary]) -> Row:
    """A run in a list: what tells it from others, and the last value of each of its names."""
    return {
        "run": record.run, "name": record.name, "project": record.project, "filename": record.filename,
        "outcome": record.outcome, "started_us": record.started_us, "ended_us": record.ended_us,
        "ranks": len(record.ranks), "world_size": record.world_size, "tags": record.tags,
        "args": {name: arg["value"] for name, arg in record.config["args"].items()},
        "version": record.version, "data_version": record.data_version,
        "last": {one.name: one.last if one.last is not None else one.last_text for one in last},
    }  # fmt: skip


def _summary(told: Row) -> Summary:
    last = told["last"]
    return Summary(
        told["name"], told["count"], last if isinstance(last, int | float) else None,
        last if isinstance(last, str) else _NO_NUMBER if last is None else None,
        told["lowest"], told["highest"], told["last_us"], tuple(told["loops"]),
    )  # fmt: skip


def _query(terms: LeaderboardTerms) -> dict[str, Any]:
    """The terms of a board as a server is asked for them; what is not told has its default there, too."""
    told = {one.name: getattr(terms, one.name) for one in fields(terms)}
    return {
        name: ",".join(given) if isinstance(given, tuple) else given
        for name, given in told.items()
        if given is not None
    }
