"""`relive run`: records an unmodified script."""

from __future__ import annotations

import os
import shutil
import sys

import click

from relive.cli.launcher_words import KNOWN, hands_free_words, is_launcher
from relive.cli.script_handover import ScriptHandover
from relive.handsfree import ScriptStart

_EXAMPLE = "name the script, as in: relive run train.py --lr 0.1"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
@click.option("--explain", is_flag=True, help="At the end, show which loops were chosen, and which state is kept.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGS]...")
def run(module: str | None, words: tuple[str, ...], *, explain: bool) -> None:
    """Run an unmodified script and record it: its loops, its state, and the values it logs.

    Arguments after SCRIPT, or after -m MODULE, are passed to the script.
    SCRIPT may also be a command of your project, or a launcher with its script: torchrun --nproc-per-node 2 train.py
    """
    if module is not None:
        raise ScriptHandover(ScriptStart(module, list(words), is_module=True, explains=explain))
    if not words:
        raise click.UsageError(f"no script was given; {_EXAMPLE}")
    is_script = os.path.isfile(words[0]) and not is_launcher(words)
    script = words[0] if is_script else _find_command(words)
    raise ScriptHandover(ScriptStart(script, list(words[1:]), explains=explain))


def _find_command(words: tuple[str, ...]) -> str:
    """Returns the script of a command written in Python; a launcher is started instead, and replaces this process."""
    program = shutil.which(words[0])
    if program is None:
        raise click.UsageError(f"{words[0]} is not a file; {_EXAMPLE}")
    if is_launcher(words):
        command = hands_free_words(words)
        sys.stdout.flush()
        os.execv(program, command)
    if not _is_python_script(program):
        raise click.UsageError(f"{words[0]} is neither a Python script nor {KNOWN}; {_EXAMPLE}")
    return program


def _is_python_script(program: str) -> bool:
    with open(program, "rb") as file:
        beginning = file.read(512)
    # Installers write `#!/bin/sh` and then the interpreter, where its path is too long for the first line.
    return beginning.startswith(b"#!") and b"python" in beginning
