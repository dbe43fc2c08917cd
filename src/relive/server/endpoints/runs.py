"""What people and pages ask: the runs, one of them, and its values as a line that fits on a screen."""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from relive.errors import NotFound
from relive.model import RunRecord
from relive.query import listed
from relive.server.endpoints.ingest import run_of
from relive.server.http import Problem, Reader, answer
from relive.store.catalog import Index, RunEntry, Summary, find_run
from relive.store.chunks import Chunks
from relive.store.journal import to_text

MAX_LIMIT = 1_000
MAX_POINTS = 5_000
MAX_WORD_CHARS = 200


class RunEndpoints:
    """The routes that read runs."""

    def __init__(self, reader: Reader, chunks: Chunks) -> None:
        self._reader = reader
        self._chunks = chunks

    async def runs(self, request: Request) -> Response:
        """Runs, newest first, with their last values.

        `search` looks at ids, names, scripts, args and tags; `run` means one of them.
        """
        word, outcome = text(request, "search").lower(), text(request, "outcome")
        limit, offset = whole(request, "limit", 50, MAX_LIMIT), whole(request, "offset", 0, 10**9)
        meant = text(request, "run")

        def ask(index: Index) -> dict[str, Any]:
            entries = index.runs()
            found = [
                entry
                for entry in ([find_run(entries, meant)] if meant else reversed(entries))
                if (not outcome or entry.record.outcome == outcome) and (not word or word in _words(entry.record))
            ]
            shown = found[offset : offset + limit]
            last = index.summaries(shown)
            return {"total": len(found), "runs": [listed(entry.record, last[entry.record.run]) for entry in shown]}

        return answer(await self._reader.ask(ask))

    async def run(self, request: Request) -> Response:
        """The record of a run, with what each of its names comes to."""
        run = run_of(request)

        def ask(index: Index) -> dict[str, Any]:
            entry = _entry(index, run)
            found = index.summaries([entry])[run]
            return {"record": entry.record, "metrics": [_summed_up(summary) for summary in found]}

        return answer(await self._reader.ask(ask))

    async def series(self, request: Request) -> Response:
        """The values of a name as a line of at most `points` pieces, each with its lowest, highest and last value."""
        run, name = run_of(request), text(request, "name")
        count, rank = whole(request, "points", 500, MAX_POINTS), whole(request, "rank", 0, 10**6)
        if not name or not count:
            raise Problem(422, "which values? Ask like ?name=loss&points=500")

        def ask(index: Index) -> dict[str, Any]:
            points = index.points([_entry(index, run)], [name], all_ranks=rank > 0)
            own = np.flatnonzero((points.rank == rank) & (points.process == 0))
            if not len(own):
                raise NotFound(f"rank {rank} of run {run} logged no {name!r}; /api/runs/{run} lists what it logged")
            return {
                "run": run,
                "name": name,
                "rank": rank,
                **downsampled(points.value[own], points.time_us[own], count),
            }

        return answer(await self._reader.ask(ask))

    async def chunk(self, request: Request) -> Response:
        """The bytes of a chunk, as they were put in."""
        data = self._chunks.get(request.path_params["chunk"])
        return Response(data, headers={"Cache-Control": "private, immutable, max-age=31536000"},
                        media_type="application/octet-stream")  # fmt: skip


def downsampled(value: Any, time_us: Any, count: int) -> dict[str, Any]:
    """Pieces of equal length. NaN has no place on a line: it is counted, and left out of lowest and highest."""
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


def _entry(index: Index, run: str) -> RunEntry:
    return find_run([entry for entry in index.runs() if entry.record.run == run], run)


def _summed_up(summary: Summary) -> dict[str, Any]:
    return {
        "name": summary.name, "count": summary.count, "last": _last(summary), "lowest": summary.lowest,
        "highest": summary.highest, "last_us": summary.last_us, "loops": list(summary.path),
    }  # fmt: skip


def _last(summary: Summary) -> Any:
    return summary.last if summary.last is not None else summary.last_text


def _words(record: RunRecord) -> str:
    args = " ".join(f"{name}={arg['value']}" for name, arg in record.config["args"].items())
    tags = to_text(record.tags)
    return f"{record.run} {record.name} {record.project} {record.filename} {args} {tags}".lower()


def text(request: Request, name: str) -> str:
    """A word of the query, which may be absent."""
    given = request.query_params.get(name, "")
    if len(given) > MAX_WORD_CHARS:
        raise Problem(422, f"{name} is longer than {MAX_WORD_CHARS} characters; shorten it")
    return given


def whole(request: Request, name: str, default: int, most: int) -> int:
    """A whole number of the query, which may be absent."""
    given = request.query_params.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdecimal() and len(given) < 16 and int(given) <= most):
        raise Problem(422, f"{name}={given[:40]!r} is not a whole number up to {most}; give one")
    return int(given)
