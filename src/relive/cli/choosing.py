"""What every command shares: which home it works on, and which run a word means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relive.errors import NotFound
from relive.model import SHORT_ID
from relive.record import look_around
from relive.store import Home, Index

home_option = click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder that holds the runs (default: .relive beside the project, or RELIVE_HOME).",
)


def open_home(path: Path | None) -> Home:
    """The home that was named, or the one of the project around the current folder."""
    home = Home(path.absolute()) if path is not None else look_around().home
    if not home.runs.is_dir():
        raise NotFound(f"no runs in {home.path}; record one with `python train.py`, or name another with --home")
    return home


def open_index(path: Path | None) -> Index:
    return Index(open_home(path))


def short(run: str) -> str:
    return run[:SHORT_ID]


def make_console() -> Any:
    """A rich console on stdout; as wide as needed when nobody is looking at a terminal."""
    import sys

    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=240, soft_wrap=True)
