"""What a shell completes: the ids of runs, the names of columns, the names that the scripts of a project log."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import click

_MAX_RUNS = 200
_MAX_FILES = 300
_MAX_BYTES = 1_000_000
_LOGGED = re.compile(r"""\blog\(\s*["']([^"']+)["']""")

Words = Callable[[click.Context], Iterable[str]]
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def _completing(words: Words) -> Complete:
    """Returns those of the words that begin with what was typed; a shell that completes never sees an error."""

    @wraps(words)
    def complete(ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
        try:
            return [word for word in words(ctx) if word.startswith(typed)]
        except Exception:  # noqa: BLE001 - it would be printed in the middle of the line that is typed
            return []

    return complete


@_completing
def complete_runs(ctx: click.Context) -> Iterable[str]:
    """The words `last` and `first`, and the ids of the newest runs."""
    from relive.cli.targets import short_id

    home = _home(ctx)
    ids = sorted(home.run_ids(), key=lambda run: -(home.runs / run).stat().st_mtime_ns)
    return ["last", "first", *map(short_id, ids[:_MAX_RUNS])]


@_completing
def complete_columns(ctx: click.Context) -> Iterable[str]:
    """The names that runs have logged, and their args."""
    from relive.store.catalog import Index

    index = Index(_home(ctx))
    entries = index.runs()
    args = {name for entry in entries for name in entry.record.config["args"]}
    return sorted(args.union(index.names(entries)))


@_completing
def complete_logged_names(ctx: click.Context) -> Iterable[str]:
    """The names in the log statements of the project's Python files: what can be asked of past runs."""
    root = _home(ctx).path.parent
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in _source_files(root))
    return sorted({name for text in texts for name in _LOGGED.findall(text)})


def _source_files(root: Path) -> Iterator[Path]:
    count = 0
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in sorted(folders) if not name.startswith((".", "_")) and name != "node_modules"]
        for name in sorted(files):
            path = Path(folder, name)
            if name.endswith(".py") and path.stat().st_size <= _MAX_BYTES:
                yield path
                count += 1
                if count >= _MAX_FILES:
                    return


def _home(ctx: click.Context) -> Any:
    from relive.cli.targets import open_home

    return open_home(ctx.params.get("home"))
