"""`relive completion`: prints the script by which a shell completes `relive …`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_PROGRAM, _VARIABLE = "relive", "_RELIVE_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the script by which SHELL completes commands, options, runs and columns.

    bash: put `eval "$(relive completion bash)"` into ~/.bashrc; zsh: the same with zsh into ~/.zshrc;
    fish: relive completion fish > ~/.config/fish/completions/relive.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    found = kind(click.get_current_context().find_root().command, {}, _PROGRAM, _VARIABLE)
    click.echo(found.source_template % found.source_vars())  # `source()` would first ask which bash is installed
