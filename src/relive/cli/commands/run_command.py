"""`relive run`: records an unmodified script."""

from __future__ import annotations

import os

import click

from relive.cli.script_handover import ScriptHandover
from relive.handsfree import ScriptStart


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
@click.option("--explain", is_flag=True, help="At the end, show which loops were chosen, and which state is kept.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGS]...")
def run(module: str | None, words: tuple[str, ...], *, explain: bool) -> None:
    """Run an unmodified script and record it: its loops, its state, and the values it logs.

    Arguments after SCRIPT, or after -m MODULE, are passed to the script.
    """
    if module is not None:
        raise ScriptHandover(ScriptStart(module, list(words), is_module=True, explains=explain))
    if not words or not os.path.isfile(words[0]):
        what = f"{words[0]} is not a file" if words else "no script was given"
        raise click.UsageError(f"{what}; name the script, as in: relive run train.py --lr 0.1")
    raise ScriptHandover(ScriptStart(words[0], list(words[1:]), explains=explain))
