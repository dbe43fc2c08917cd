"""The `relive` command group: loads commands on demand, and prints errors as one line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from relive.cli.hash_seed import restart_with_fixed_hash_seed
from relive.cli.script_handover import ScriptHandover
from relive.errors import ReliveError
from relive.store import telling_disk_errors

# The module of `commands` that defines each command, in the order of the help page; `module:attribute` if names differ.
COMMANDS = {
    "run": "run_command", "runs": "runs_commands", "show": "runs_commands", "replay": "replay_command",
    "leaderboard": "leaderboard_commands", "compare": "leaderboard_commands", "diff": "version_commands",
    "diverge": "version_commands", "versions": "version_commands", "checkout": "version_commands",
    "skew": "skew_commands", "watch": "skew_commands",
    "dataframe": "query_commands", "sql": "query_commands", "promote": "registry_commands:promote_command",
    "registry": "registry_commands", "alias": "registry_commands", "rollback": "registry_commands",
    "retire": "registry_commands", "download": "registry_commands", "checkpoints": "checkpoint_commands",
    "export": "home_commands", "doctor": "home_commands", "rm": "runs_commands", "scrub": "home_commands",
    "gc": "checkpoint_commands",
    "pin": "runs_commands", "unpin": "runs_commands", "transplant": "transplant_command", "memo": "memo_commands",
    "ui": "ui.ui_command", "serve": "server_commands:serve_command", "token": "server_commands",
    "sync": "server_commands", "fetch": "server_commands", "trust": "home_commands",
}  # fmt: skip


def _home_asked_for() -> Path:
    """The home that a command works on, told after it has failed: its options are gone by then."""
    from relive.record.process import read_launch_context

    words = sys.argv[1:]
    named = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--home"]
    named += [word.partition("=")[2] for word in words if word.startswith("--home=")]
    return Path(named[-1]).absolute() if named else read_launch_context().home.path


class _LazyGroup(click.Group):
    """Imports only the module of the invoked command, and prints errors as one line with the remedy."""

    def main(self, *args: Any, **how: Any) -> Any:
        if not args and not how and sys.argv[1:2] == ["run"]:
            restart_with_fixed_hash_seed()
        try:
            return super().main(*args, **how)
        except ScriptHandover as handover:
            start = handover.start
        from relive.handsfree import locate_script, run_script

        try:
            locate_script(start)
        except ReliveError as error:
            click.echo(f"Error: {error}", err=True)
            raise SystemExit(1) from None
        return run_script(start)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        found = getattr(importlib.import_module(f"relive.cli.commands.{module}"), attribute or cmd_name)
        assert isinstance(found, click.Command)
        return found

    def invoke(self, ctx: click.Context) -> object:
        try:
            with telling_disk_errors(_home_asked_for):
                return super().invoke(ctx)
        except ReliveError as error:
            raise click.ClickException(str(error)) from error
        except BrokenPipeError:  # `relive runs | head`
            sys.stderr.close()
            raise SystemExit(0) from None


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="relive")
def main() -> None:
    """Hindsight logging: record every training run, and compute later what you forgot to log."""
