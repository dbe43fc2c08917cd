"""Queries about runs against a home or a server; both return the same values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from relive.model import RUNNING, RunRecord, Verdict
from relive.query.record_pages import MAX_ITEMS, add_page
from relive.store.catalog import Index, Summary, find_run, list_replays

if TYPE_CHECKING:  # listing runs needs none of these, and they load numpy or HTTP
    from relive.query.compare import LeaderboardTerms, RuleStatus, SkewRule
    from relive.store.sync import ServerClient

_PAGE = 1_000  # runs in one response of a server
_NO_NUMBER = '"no number"'  # JSON can't represent NaN, so a server sends null
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunDetails:
    """The record of a run, the summaries of its names, its replays; `folder` holds its journals, if they are local."""

    record: RunRecord
    metrics: list[Summary]
    folder: Path | None = None
    replays: Sequence[Row] = ()


class RunsBackend(Protocol):
    """A set of runs that can be queried."""

    def list_runs(self, limit: int) -> tuple[int, list[Row]]:
        """Returns the number of runs, and the newest `limit` of them with their last values; a limit of 0 means all."""

    def get_run(self, word: str) -> RunDetails:
        """Returns one run, given by a prefix of its id, its name, or `last`."""

    def console(self, word: str, rank: int, offset: int) -> Row:
        """Returns up to 1,000 lines that a run printed, from `offset` on."""

    def live(self) -> list[str]:
        """Returns the ids of the live runs."""

    def leaderboard(self, metric: str, terms: LeaderboardTerms) -> Row: ...

    def compare(self, words: Sequence[str]) -> Row: ...

    def skew(self, word: str, name: str) -> Row: ...

    def check_rule(self, run: str, rule: SkewRule) -> RuleStatus: ...


class HomeRuns:
    """The runs of a home."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def list_runs(self, limit: int) -> tuple[int, list[Row]]:
        total, entries = self._index.newest(limit)
        chosen = entries[::-1]
        last = self._index.summaries(chosen)
        return total, [run_list_row(entry.record, last[entry.record.run]) for entry in chosen]

    def get_run(self, word: str) -> RunDetails:
        entry = find_run(self._index.runs(), word)
        run = entry.record.run
        home = self._index.home
        return RunDetails(
            entry.record, self._index.summaries([entry])[run], home.run_folder(run), list_replays(home, run)
        )

    def console(self, word: str, rank: int, offset: int) -> Row:
        from relive.query.console_lines import console_json

        run = find_run(self._index.runs(), word).record.run
        return console_json(self._index.home.run_folder(run), rank, offset=offset, limit=_PAGE)

    def live(self) -> list[str]:
        return [entry.record.run for entry in self._index.runs() if entry.live]

    def leaderboard(self, metric: str, terms: LeaderboardTerms) -> Row:
        from relive.query.compare import build_leaderboard

        return build_leaderboard(self._index, metric, terms)

    def compare(self, words: Sequence[str]) -> Row:
        from relive.query.compare import compare_runs

        return compare_runs(self._index, words)

    def skew(self, word: str, name: str) -> Row:
        from relive.query.compare import rank_skew

        return rank_skew(self._index, word, name)

    def check_rule(self, run: str, rule: SkewRule) -> RuleStatus:
        from relive.query.compare import check_rule

        return check_rule(self._index, run, rule)


class ServerRuns:
    """The runs of a server's store, over HTTP."""

    def __init__(self, remote: ServerClient) -> None:
        self._remote = remote

    def list_runs(self, limit: int) -> tuple[int, list[Row]]:
        found: list[Row] = []
        while True:
            page = min(limit - len(found), _PAGE) if limit else _PAGE
            answer = self._get("/api/runs", limit=page, offset=len(found))
            found += answer["runs"]
            if not answer["runs"] or len(found) >= (limit or answer["total"]):
                return int(answer["total"]), found

    def get_run(self, word: str) -> RunDetails:
        from relive.store.sync import ServerUnreachable

        path = f"/api/runs/{self._resolve_id(word)}"
        answer = self._get_whole(path, "metrics")
        try:
            record = msgspec.convert(self._whole_record(path, answer), RunRecord)
        except msgspec.ValidationError as error:
            raise ServerUnreachable(f"{self._remote.url} sent a record that can't be read ({error})") from error
        metrics = [_parse_summary(row) for row in answer["metrics"]]
        return RunDetails(record, metrics, replays=answer.get("replays") or [])

    def console(self, word: str, rank: int, offset: int) -> Row:
        return self._get(f"/api/runs/{self._resolve_id(word)}/console", rank=rank, offset=offset, limit=_PAGE)

    def live(self) -> list[str]:
        return [run["run"] for run in self._get("/api/runs", outcome=RUNNING, limit=_PAGE)["runs"]]

    def leaderboard(self, metric: str, terms: LeaderboardTerms) -> Row:
        return self._get("/api/leaderboard", metric=metric, **_query_parameters(terms))

    def compare(self, words: Sequence[str]) -> Row:
        path, runs = "/api/compare", ",".join(words)
        answer = self._get(path, runs=runs)
        totals, page = answer.pop("totals", {}), answer  # older servers send all at once
        every = max(totals.values(), default=0)
        at = step = max((len(page[part]) for part in totals), default=0)
        while step and at < every:
            page = self._get(path, runs=runs, offset=at)
            for part in totals:
                answer[part] += page[part]
            step = max(len(page[part]) for part in totals)
            at += step
        return answer

    def skew(self, word: str, name: str) -> Row:
        return self._get_whole(f"/api/runs/{self._resolve_id(word)}/skew", "steps", name=name)

    def check_rule(self, run: str, rule: SkewRule) -> RuleStatus:
        from relive.query.compare import RuleStatus

        answer = self._get(f"/api/runs/{run}/alert", name=rule.name, above=rule.bound, steps=rule.steps)
        return msgspec.convert(answer, RuleStatus)

    def _whole_record(self, path: str, answer: Row) -> Row:
        """Returns the record of an answer with all pages of its lists."""
        record, every = answer["record"], max(answer.get("totals", {}).values(), default=0)
        for at in range(MAX_ITEMS, every, MAX_ITEMS):
            add_page(record, self._get(path, offset=at, limit=MAX_ITEMS)["record"])
        return dict(record)

    def _resolve_id(self, word: str) -> str:
        return str(self._get("/api/runs", run=word)["runs"][0]["run"])

    def _get_whole(self, path: str, field: str, **query: Any) -> Row:
        """Returns an answer with all pages of a list in it."""
        answer = self._get(path, **query)
        rows, page, total = answer[field], answer[field], answer.pop("total", 0)  # older servers send all at once
        while page and len(rows) < total:
            page = self._get(path, **query, offset=len(rows))[field]
            rows += page
        return answer

    def _get(self, path: str, **query: Any) -> Row:
        from relive.store.sync import translate_server_errors

        with translate_server_errors():
            answer: Row = self._remote.get(path, **query)
            return answer


def run_list_row(record: RunRecord, last: Sequence[Summary]) -> Row:
    """Returns the row of a run in a list: what identifies it, and the last value of each of its names."""
    return {
        "run": record.run, "name": record.name, "project": record.project, "filename": record.filename,
        "outcome": record.outcome, "incomplete": list(record.incomplete),
        "started_us": record.started_us, "ended_us": record.ended_us,
        "ranks": len(record.ranks), "world_size": record.world_size, "tags": record.tags,
        "args": {name: arg["value"] for name, arg in record.config["args"].items()},
        "version": record.version, "data_version": record.data_version,
        "last": {one.name: one.exact_last for one in last},
        "marked": {one.name: Verdict(one.verdict).word for one in last if Verdict(one.verdict).is_marked},
    }  # fmt: skip


def _parse_summary(row: Row) -> Summary:
    last = row["last"]
    return Summary(
        row["name"], row["count"], last if isinstance(last, int | float) else None,
        last if isinstance(last, str) else _NO_NUMBER if last is None else None,
        row["lowest"], row["highest"], row["last_us"], tuple(row["loops"]),
        verdict=int(Verdict.of(row.get("verdict", Verdict.RECORDED.word))),
    )  # fmt: skip


def _query_parameters(terms: LeaderboardTerms) -> dict[str, Any]:
    """Returns the terms of a board as URL parameters; absent terms have the same defaults on the server."""
    values = {one.name: getattr(terms, one.name) for one in fields(terms)}
    return {
        name: ",".join(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None
    }
