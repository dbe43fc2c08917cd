"""Endpoints that read runs: the list, one record, downsampled series of values, and chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from relive.errors import NotFound
from relive.model import RunRecord, Verdict
from relive.query import cut_run_row, page_of_record, run_list_row
from relive.server.endpoints.ingest import run_of
from relive.server.http import HttpError, compact_response, lease_of
from relive.server.questions import ReaderPool
from relive.store.catalog import Index, Points, RunEntry, Summary, find_run, list_replays
from relive.store.chunks import Chunks
from relive.store.journal import to_json
from relive.store.sync import MAX_CHUNK_BYTES, owners_of, read_decoded

MAX_LIMIT = 1_000
MAX_POINTS = 5_000
MAX_NAMES = 10_000  # of a run, at a time
MAX_WORD_CHARS = 200


class RunEndpoints:
    """Endpoints that read runs."""

    def __init__(self, readers: ReaderPool, chunks: Chunks) -> None:
        self._readers = readers
        self._chunks = chunks

    async def runs(self, request: Request) -> Response:
        """Lists runs, newest first, with their last values.

        `search` matches ids, names, scripts, args and tags; `run` selects one run.
        """
        word, outcome = query_text(request, "search").lower(), query_text(request, "outcome")
        limit, offset = query_int(request, "limit", 50, MAX_LIMIT), query_int(request, "offset", 0, 10**9)
        selected = query_text(request, "run")
        return compact_response(
            request, await self._readers.ask(request, _list_runs, selected, outcome, word, offset, limit)
        )  # fmt: skip

    async def run(self, request: Request) -> Response:
        """Returns the record of a run, a summary of each name, and its replays with the verdicts on their values.

        Of each list, a page: `limit` items after `offset`.
        """
        limit, offset = query_int(request, "limit", MAX_NAMES, MAX_NAMES), query_int(request, "offset", 0, 10**9)
        return compact_response(
            request, await self._readers.ask(request, _describe_run, run_of(request), offset, limit)
        )

    async def series(self, request: Request) -> Response:
        """Returns the values of a name in at most `points` buckets, each with its lowest, highest and last value."""
        run, name = run_of(request), query_text(request, "name")
        count, rank = query_int(request, "points", 500, MAX_POINTS), query_int(request, "rank", 0, 10**6)
        if not name or not count:
            raise HttpError(422, "the parameter name is missing, or points is 0; write ?name=loss&points=500")
        return compact_response(request, await self._readers.ask(request, _read_series, run, name, rank, count))

    async def chunk(self, request: Request) -> Response:
        """Returns the uncompressed bytes of a chunk, a megabyte at a time; who asks compares them with the name."""
        name, work = request.path_params["chunk"], lease_of(request).work
        pieces = read_decoded(self._chunks.path(name), MAX_CHUNK_BYTES)
        first = await work(lambda: next(pieces, b"") if name in self._chunks else self._chunks.get(name))

        async def send() -> AsyncIterator[bytes]:
            piece = first
            while piece:
                yield piece
                piece = await work(lambda: next(pieces, b""))

        headers = {"Cache-Control": "private, immutable, max-age=31536000"}
        return StreamingResponse(send(), headers=headers, media_type="application/octet-stream")


# --- questions about runs, answered by a reader -----------------------------------------------------------------------


def _list_runs(index: Index, selected: str, outcome: str, word: str, offset: int, limit: int) -> dict[str, Any]:
    entries = index.runs()
    found = [
        entry
        for entry in ([find_run(entries, selected)] if selected else reversed(entries))
        if (not outcome or entry.record.outcome == outcome) and (not word or word in _search_text(entry.record))
    ]
    shown = found[offset : offset + limit]
    last = index.summaries(shown)
    return {
        "total": len(found),
        "runs": [cut_run_row(run_list_row(entry.record, last[entry.record.run])) for entry in shown],
        "set_aside": [{"run": run, "reason": reason[:500]} for run, reason in list(index.set_aside.items())[:100]],
    }


def _describe_run(index: Index, run: str, offset: int, limit: int) -> dict[str, Any]:
    entry = _find_entry(index, run)
    found = index.summaries([entry])[run]
    senders = owners_of(index.home.path).replay_senders(run)
    replays = [{**one, "by": senders.get(one["replay"])} for one in list_replays(index.home, run)]
    metrics = [_summary_json(summary) for summary in found[offset : offset + limit]]
    record, totals = page_of_record(entry.record, offset, limit)
    return {"record": record, "metrics": metrics, "total": len(found), "totals": totals, "replays": replays}


def _read_series(index: Index, run: str, name: str, rank: int, count: int) -> dict[str, Any]:
    points = index.points([_find_entry(index, run)], [name], all_ranks=rank > 0)
    of_rank = np.flatnonzero((points.rank == rank) & (points.process == 0))
    if not len(of_rank):
        raise NotFound(f"rank {rank} of run {run} logged no {name!r}; /api/runs/{run} lists what it logged")
    return {
        "run": run,
        "name": name,
        "rank": rank,
        **downsample(points.value[of_rank], points.time_us[of_rank], count),
        "verdicts": _count_verdicts(points, of_rank),
    }


def downsample(value: Any, time_us: Any, count: int) -> dict[str, Any]:
    """Downsamples values to buckets of equal length; NaN is counted, and ignored in lowest and highest."""
    size = len(value)
    starts = np.unique(np.linspace(0, size, min(count, size), endpoint=False).astype(np.int64))
    ends = np.r_[starts[1:], size] - 1
    return {
        "count": size,
        "nan": int(np.isnan(value).sum()),
        "at": ends.tolist(),
        "time_us": time_us[ends].tolist(),
        "last": value[ends].tolist(),
        "lowest": np.fmin.reduceat(value, starts).tolist(),
        "highest": np.fmax.reduceat(value, starts).tolist(),
    }


def _find_entry(index: Index, run: str) -> RunEntry:
    return find_run([entry for entry in index.runs() if entry.record.run == run], run)


def _count_verdicts(points: Points, rows: Any) -> dict[str, int]:
    """Counts the verdicts on the replayed values among these rows."""
    if points.verdict is None:
        return {}
    numbers = np.bincount(points.verdict[rows], minlength=len(Verdict)).tolist()
    return {verdict.word: numbers[verdict] for verdict in Verdict if verdict and numbers[verdict]}


def _summary_json(summary: Summary) -> dict[str, Any]:
    return {
        "name": summary.name, "count": summary.count, "last": _last_value(summary), "lowest": summary.lowest,
        "highest": summary.highest, "last_us": summary.last_us, "loops": list(summary.path),
        "verdict": Verdict(summary.verdict).word,
    }  # fmt: skip


def _last_value(summary: Summary) -> Any:
    return summary.exact_last


def _search_text(record: RunRecord) -> str:
    args = " ".join(f"{name}={arg['value']}" for name, arg in record.config["args"].items())
    tags = to_json(record.tags)
    return f"{record.run} {record.name} {record.project} {record.filename} {args} {tags}".lower()


def query_text(request: Request, name: str, most_chars: int = MAX_WORD_CHARS) -> str:
    """Returns a query parameter as text; "" if it is absent."""
    raw = request.query_params.get(name, "")
    if len(raw) > most_chars:
        raise HttpError(422, f"the parameter {name} is longer than {most_chars} characters; shorten it")
    return raw


def query_int(request: Request, name: str, default: int, most: int) -> int:
    """Returns a query parameter as an integer from 0 to `most`, or the default if it is absent."""
    raw = request.query_params.get(name)
    if raw is None:
        return default
    if not (raw.isascii() and raw.isdecimal() and len(raw) < 16 and int(raw) <= most):
        raise HttpError(422, f"{name}={raw[:40]!r} is not an integer from 0 to {most}; correct it")
    return int(raw)
