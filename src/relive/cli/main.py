"""The group that all commands belong to, and how errors look at a terminal."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from relive.cli.hashing_order import settle_order
from relive.cli.leaving import Leave
from relive.errors import ReliveError

# Which module holds which commands, in the order in which people need them; `module:attribute` where the names differ.
COMMANDS = {
    "run": "running", "runs": "runs", "show": "runs", "replay": "replay", "leaderboard": "board", "compare": "board",
    "diff": "versions", "versions": "versions", "checkout": "versions", "skew": "watching", "watch": "watching",
    "dataframe": "queries", "sql": "queries", "promote": "registry:promote_command", "registry": "registry",
    "alias": "registry", "rollback": "registry", "retire": "registry", "download": "registry",
    "checkpoints": "checkpoints", "export": "care", "doctor": "care", "rm": "runs", "gc": "checkpoints",
    "pin": "runs", "unpin": "runs",
    "transplant": "transplanting", "memo": "memos", "serve": "serving:serve_command", "token": "serving",
    "sync": "serving", "fetch": "serving",
}  # fmt: skip


class _Commands(click.Group):
    """Loads only the command that is called, and shows errors as one line with the remedy."""

    def main(self, *args: Any, **how: Any) -> Any:
        if not args and not how and sys.argv[1:2] == ["run"]:
            settle_order()
        try:
            return super().main(*args, **how)
        except Leave as leave:
            start = leave.start
        from relive.handsfree import locate, run

        try:
            locate(start)
        except ReliveError as error:
            click.echo(f"Error: {error}", err=True)
            raise SystemExit(1) from None
        return run(start)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        found = getattr(importlib.import_module(f"relive.cli.{module}"), attribute or cmd_name)
        assert isinstance(found, click.Command)
        return found

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ReliveError as error:
            raise click.ClickException(str(error)) from error
        except BrokenPipeError:  # `relive runs | head`
            sys.stderr.close()
            raise SystemExit(0) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="relive")
def main() -> None:
    """Train now, ask later: the record of every run, and what you forgot to log."""
