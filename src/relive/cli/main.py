"""The group that all commands belong to, and how errors look at a terminal."""

from __future__ import annotations

import sys

import click

from relive.cli import (
    board,
    care,
    checkpoints,
    memos,
    queries,
    registry,
    replay,
    runs,
    serving,
    transplanting,
    versions,
    watching,
)
from relive.errors import ReliveError


class _Commands(click.Group):
    """Shows commands in the order in which people need them, and errors as one line with the remedy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

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


for command in (
    runs.runs, runs.show, replay.replay, board.leaderboard, board.compare, versions.diff, versions.versions,
    versions.checkout, watching.skew, watching.watch, queries.dataframe, queries.sql, registry.promote_command,
    registry.registry, registry.alias, registry.rollback, registry.retire, registry.download, checkpoints.checkpoints,
    care.export, care.doctor, runs.rm, checkpoints.gc, transplanting.transplant, memos.memo,
    serving.serve_command, serving.token, serving.sync,
):  # fmt: skip
    main.add_command(command)
