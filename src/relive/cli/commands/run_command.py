"""`relive run`: a script as it is, recorded as if an expert had written the calls."""

from __future__ import annotations

import os

import click

from relive.cli.script_handover import Leave
from relive.handsfree import ScriptStart


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
@click.option("--explain", is_flag=True, help="Say at the end which loops were chosen, and what is kept of them.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGS]...")
def run(module: str | None, words: tuple[str, ...], *, explain: bool) -> None:
    """Run a script that knows nothing of relive, and record it: its loops, its state, and what it logs.

    What comes after SCRIPT, or after -m MODULE, is for the script.
    """
    if module is not None:
        raise Leave(ScriptStart(module, list(words), is_module=True, explains=explain))
    if not words or not os.path.isfile(words[0]):
        what = f"{words[0]} is no file" if words else "nothing to run"
        raise click.UsageError(f"{what}; name the script, as in: relive run train.py --lr 0.1")
    raise Leave(ScriptStart(words[0], list(words[1:]), explains=explain))
