"""The attackers of `bench.adversary`: each kind in a loop of its own, bounded in count and time, on 127.0.0.1 only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

SLOW_LOGINS, IDLE, SLOW_HEADS, SLOW_BODIES, UNREAD = 530, 10_000, 100, 300, 20
MANY_RUNS, RECORD_BYTES = 300, 100 << 20
HUGE = "len(range(60000000)) > 0"
ENDLESS = "levenshtein(repeat('a', 1000000), repeat('b', 1000000)) > 0"


@dataclass
class Target:
    """A server on this machine, two tokens, and the runs of others."""

    port: int
    eve: str
    mallory: str
    runs: list[str]
    end: float
    chosen: tuple[str, ...] = ("all",)
    counts: Counter[str] = field(default_factory=Counter)

    async def ask(self, method: str, path: str, token: str, body: bytes = b"", *, wait_s: float = 60.0) -> int:
        """Sends a request; returns its status, 0 if there was none."""
        with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, ValueError, IndexError):
            async with asyncio.timeout(wait_s):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                    more = "Content-Encoding: zstd\r\n" if body[:4] == b"\x28\xb5\x2f\xfd" else ""
                    writer.write(
                        f"{head}{more}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
                    )
                    with contextlib.suppress(OSError):
                        await writer.drain()
                    return int((await reader.readline()).split()[1])
                finally:
                    writer.close()
        return 0

    def count(self, attack: str, status: int | str) -> None:
        self.counts[f"{attack}:{status}"] += 1

    def does(self, attack: str) -> bool:
        return "all" in self.chosen or attack in self.chosen

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.end


async def hold(target: Target, name: str, *, count: int, opening: bytes, drip: bytes, per_s: int = 500) -> None:
    """Keeps up to `count` connections open, which send a little now and then, and are opened again when closed."""
    held: set[asyncio.StreamWriter] = set()
    while target.does(name) and not target.is_over:
        for _ in range(min(per_s // 5, count - len(held))):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", target.port)
                writer.write(opening)
                held.add(writer)
                target.count(name, "opened")
        for writer in list(held):
            with contextlib.suppress(OSError, RuntimeError):
                if drip and random.random() < 0.1:
                    writer.write(drip)
            if writer.is_closing():
                held.discard(writer)
                writer.close()
        await asyncio.sleep(0.2)
    for writer in held:
        writer.close()


async def repeat(target: Target, name: str, once: Callable[[], Awaitable[int]], pause_s: float) -> None:
    while target.does(name) and not target.is_over:
        target.count(name, await once())
        await asyncio.sleep(pause_s)


def _append_path(run: str, plain: bytes, lines_bytes: int, at: tuple[int, int] = (0, 0)) -> str:
    import xxhash

    sizes = f"slots={at[0]}&slots_bytes={len(plain) - lines_bytes}&lines={at[1]}&lines_bytes={lines_bytes}"
    return f"/api/runs/{run}/journals/0?{sizes}&digest={xxhash.xxh3_128_hexdigest(plain)}"


def _line(kind: str, seq: int, **content: Any) -> bytes:
    return json.dumps({"v": 1, "seq": seq, "t": 1, "k": kind, "loop": 1, "i": 0, **content}).encode() + b"\n"


def _run_id() -> str:
    return f"{random.randrange(1 << 48):012x}"


async def begin_large_run(target: Target, world_size: int) -> int:
    """A run that claims many ranks, and a look at its skew."""
    from relive.store.journal import SLOTS_MAGIC

    run = _run_id()
    lines = _line("run", 1, run=run, wall_ns=1, clock_ns=1, world_size=world_size) + _line("name", 2, id=1, name="loss")
    slot = (1).to_bytes(4, "little") + bytes(16) + (1 << 24 | 1).to_bytes(4, "little")
    plain = SLOTS_MAGIC + slot + lines
    status = await target.ask("POST", _append_path(run, plain, len(lines)), target.eve, plain)
    if status == 200:
        await target.ask("GET", f"/api/runs/{run}/skew?name=loss", target.eve)
    return status


async def begin_many_runs(target: Target) -> None:
    """Runs that begin and say nothing more: each question reads the records of all."""
    for _ in range(MANY_RUNS):
        if not target.does("many_runs") or target.is_over:
            return
        run = _run_id()
        lines = _line("run", 1, run=run, wall_ns=1, clock_ns=1)
        target.count("many_runs", await target.ask("POST", _append_path(run, lines, len(lines)), target.eve, lines))
        await asyncio.sleep(0.1)


async def grow_record(target: Target) -> None:
    """A live run with hundreds of thousands of tags, and one more now and then: its record is part of each list."""
    run, seq = _run_id(), 2
    lines = _line("run", 1, run=run, wall_ns=1, clock_ns=1)
    at = 0
    while target.does("long_record") and not target.is_over:
        status = await target.ask("POST", _append_path(run, lines, len(lines), (0, at)), target.eve, lines)
        target.count("long_record", status)
        at += len(lines) if status == 200 else 0
        count = 5_000 if at < RECORD_BYTES else 1
        lines = b"".join(_line("tag", seq + n, name=f"tag {seq + n}", value="x" * 2_000) for n in range(count))
        seq += count
        await asyncio.sleep(0.2 if at < RECORD_BYTES else 5.0)


async def send_line(target: Target, extra: bytes) -> int:
    """A first line, and one of a kind that nobody knows, with this in it."""
    run = _run_id()
    odd = _line("wonder", 2)[:-2] + b', "x": ' + extra + b"}\n"
    lines = _line("run", 1, run=run, wall_ns=1, clock_ns=1) + odd
    return await target.ask("POST", _append_path(run, lines, len(lines)), target.eve, lines)


async def forge(target: Target) -> int:
    """Other bytes for somebody's run, in place of the stored ones."""
    run = random.choice(target.runs)
    lines = _line("run", 1, run=run, wall_ns=2, clock_ns=2, name="forged")
    return await target.ask("POST", _append_path(run, lines, len(lines)), target.mallory, lines)


async def ask_and_leave(target: Target) -> int:
    path = f"/api/leaderboard?metric=loss&where={quote(ENDLESS)}"
    await target.ask("GET", path, target.mallory, wait_s=0.2)
    return 0


async def upload_bomb(target: Target, name: str, file: bytes) -> int:
    return await target.ask("PUT", f"/api/chunks/{name}/upload?at=0&size={len(file)}", target.eve, file)


async def stream(target: Target, method: str, path: str, token: str, pieces: Iterable[bytes]) -> int:
    """Sends a body in chunks, without its length, until the server answers or closes; returns the status, or 0."""
    with contextlib.suppress(OSError, asyncio.TimeoutError, ValueError, IndexError):
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
            answer = asyncio.ensure_future(reader.readline())
            try:
                head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                writer.write(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
                with contextlib.suppress(OSError):
                    for piece in pieces:
                        if answer.done():
                            break
                        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                        await writer.drain()
                    writer.write(b"0\r\n\r\n")
                return int((await answer).split()[1])
            finally:
                answer.cancel()
                writer.close()
    return 0


def unsized_bomb() -> bytes:
    """600 MB, packed, in a frame that does not say how much it holds."""
    import zstandard

    packing = zstandard.ZstdCompressor().compressobj()
    return b"".join([*(packing.compress(bytes(1 << 20)) for _ in range(600)), packing.flush()])


async def stream_bombs(target: Target) -> None:
    """Bodies of 600 MB in chunks: as they are, to routes with a token and without, and packed."""
    plain, packed, million = [bytes(1 << 20)] * 600, unsized_bomb(), _append_path(_run_id(), bytes(1 << 20), 1 << 20)
    upload = f"/api/chunks/{random.getrandbits(256):064x}/upload?at=0&size={600 << 20}"
    await asyncio.gather(
        repeat(target, "chunked_range", lambda: stream(target, "POST", million, target.eve, plain), 3.0),
        repeat(target, "chunked_chunk", lambda: stream(target, "PUT", upload, target.eve, plain), 3.0),
        repeat(target, "chunked_login", lambda: stream(target, "POST", "/login", "", plain), 3.0),
        repeat(target, "unsized_bomb", lambda: target.ask("POST", million, target.eve, packed), 3.0),
    )


async def send_nested_json(target: Target) -> None:
    """JSON that is nested a million times, where names are expected, and in a line of a kind that is known."""
    deep = b'{"names": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
    run = _run_id()
    first = _line("run", 1, run=run, wall_ns=1, clock_ns=1)
    tag = _line("tag", 2)[:-2] + b', "name": "x", "value": ' + b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_000 + b"}\n"
    lines = first + tag
    await asyncio.gather(
        repeat(target, "nested_names", lambda: target.ask("POST", "/api/chunks/missing", target.eve, deep), 2.0),
        repeat(
            target, "nested_tag",
            lambda: target.ask("POST", _append_path(run, lines, len(lines)), target.eve, lines), 2.0,
        ),
    )  # fmt: skip


async def attack(target: Target) -> None:
    import zstandard

    bomb = zstandard.compress(bytes(600 << 20))  # declares its size
    login = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\ntoken="
    body = f"POST {_append_path(_run_id(), bytes(9000), 9000)} HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n"
    owned = f"Authorization: Bearer {target.eve}\r\n\r\n"
    unread = f"GET /api/runs?limit=1000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.eve}\r\n\r\n"
    boards = [f"/api/leaderboard?metric=loss&where={quote(where)}" for where in (HUGE, ENDLESS)]
    wide, deep = b"[" + b"[]," * 900_000 + b"[]]", b"[" * 3_000_000
    await asyncio.gather(
        stream_bombs(target),
        send_nested_json(target),
        begin_many_runs(target),
        grow_record(target),
        hold(target, "slow_login", count=SLOW_LOGINS, opening=login, drip=b"x"),
        hold(target, "idle", count=IDLE, opening=b"", drip=b""),
        hold(target, "slow_head", count=SLOW_HEADS, opening=b"GET /api/runs HTTP/1.1\r\nX: ", drip=b"x"),
        hold(target, "slow_body", count=SLOW_BODIES, opening=(body + owned).encode(), drip=b"x"),
        hold(target, "unread_answer", count=UNREAD, opening=(unread * 20).encode(), drip=b""),
        *(repeat(target, "huge_where", lambda: target.ask("GET", boards[0], target.eve), 0.5) for _ in range(2)),
        *(repeat(target, "endless_where", lambda: target.ask("GET", boards[1], target.eve), 0.5) for _ in range(2)),
        repeat(target, "leaving_client", lambda: ask_and_leave(target), 1.0),
        repeat(target, "ranks_2_to_60", lambda: begin_large_run(target, 1 << 60), 1.0),
        repeat(target, "million_ranks", lambda: begin_large_run(target, 1_000_000), 2.0),
        repeat(target, "wide_line", lambda: send_line(target, wide), 3.0),
        repeat(target, "deep_line", lambda: send_line(target, deep), 3.0),
        repeat(target, "forged_range", lambda: forge(target), 0.5),
        repeat(
            target, "range_bomb", lambda: target.ask("POST", _append_path(_run_id(), b"x", 1), target.eve, bomb), 2.0
        ),
        repeat(
            target, "chunk_bomb", lambda: upload_bomb(target, f"{random.getrandbits(256):064x}", b"\x01" + bomb), 5.0
        ),
    )


def main() -> None:
    """Reads the target from stdin, attacks it for so many seconds, and prints what came of it."""
    given = json.loads(sys.stdin.readline())
    parts = urlsplit(given["url"])
    if parts.hostname != "127.0.0.1" or parts.port is None:
        raise SystemExit("attacks are for a server on 127.0.0.1")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 20_000, hard))
    os.setpriority(os.PRIO_PROCESS, 0, 19)  # who attacks from elsewhere does not use the processors of the server
    end = time.monotonic() + float(sys.argv[1])
    target = Target(parts.port, given["eve"], given["mallory"], given["runs"], end, tuple(sys.argv[2].split(",")))
    asyncio.run(attack(target))
    print(json.dumps(dict(sorted(target.counts.items()))))


if __name__ == "__main__":
    main()
