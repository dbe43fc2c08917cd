"""The `relive` command group: loads commands on demand, and prints errors as one line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relive.cli.hash_seed import restart_with_fixed_hash_seed
from relive.cli.script_handover import ScriptHandover
from relive.errors import ReliveError
from relive.store import telling_disk_errors

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# The help page by sections: each command, the module of `commands` that defines it (`module:attribute` if their names
# differ), and what it does. The page is printed without importing any of them.
SECTIONS = {
    "Record": {
        "run": ("run_command", "Run an unmodified script, and record and checkpoint it."),
        "runs": ("runs_commands", "List the runs, newest first; live runs are marked."),
        "show": ("runs_commands", "Show the record of a run: config, code, data, metrics, …"),
        "checkpoints": ("checkpoint_commands", "List the checkpoints of a run, and what they cost."),
    },
    "Ask": {
        "replay": ("replay_command", "Fill columns that past runs never logged."),
        "stop": ("replay_command", "End the processes that stay after a replay."),
        "dataframe": ("query_commands", "Show one wide table over all runs."),
        "sql": ("query_commands", "Run read-only SQL over runs, args, logs, loops and tables."),
        "leaderboard": ("leaderboard_commands", "Rank the runs that logged a metric, best first."),
        "compare": ("leaderboard_commands", "Show args and metrics of several runs side by side."),
        "diff": ("version_commands", "Show the differences between two runs."),
        "diverge": ("version_commands", "Say where two runs, or the ranks of one, parted."),
        "skew": ("skew_commands", "Show how far the ranks of a run differ, step by step."),
        "watch": ("skew_commands", "Watch live runs, and alert when their ranks differ."),
    },
    "Code and models": {
        "versions": ("version_commands", "List the code versions with their runs."),
        "checkout": ("version_commands", "Write the code version of a run to a new folder."),
        "transplant": ("transplant_command", "Carry statements from one version of a file to another."),
        "promote": ("registry_commands:promote_command", "Make a run the next version of a model."),
        "registry": ("registry_commands", "List the models, or the versions of one."),
        "alias": ("registry_commands", "Point an alias to a version of a model."),
        "rollback": ("registry_commands", "Point an alias to its previous version."),
        "retire": ("registry_commands", "Retire a version of a model."),
        "download": ("registry_commands", "Write the artifact of a version, and verify it."),
        "memo": ("memo_commands", "List remembered calls, and explain or remove them."),
    },
    "Web and team": {
        "ui": ("ui.ui_command", "Open the runs of this home in a browser, live."),
        "serve": ("server_commands:serve_command", "Serve a store to a team, over HTTP."),
        "token": ("server_commands", "Manage the tokens of a server."),
        "sync": ("server_commands", "Send runs that were recorded offline to the server."),
        "fetch": ("server_commands", "Fetch a run from the server into this home."),
        "trust": ("home_commands", "Let runs that others recorded run code here."),
    },
    "Keep": {
        "doctor": ("home_commands", "Check every journal and the chunks it refers to."),
        "gc": ("checkpoint_commands", "Remove checkpoints beyond the budget, and unused data."),
        "pin": ("runs_commands", "Keep all checkpoints of a run."),
        "unpin": ("runs_commands", "Allow `relive gc` to remove checkpoints of a run again."),
        "export": ("home_commands", "Write a run to a folder as plain files."),
        "rm": ("runs_commands", "Remove a run permanently."),
        "scrub": ("home_commands", "Remove a secret that slipped into a run."),
        "completion": ("shell.completion_command", "Print the script by which a shell completes commands."),
    },
}
COMMANDS = {name: place for commands in SECTIONS.values() for name, (place, _) in commands.items()}
_WIDEST = max(map(len, COMMANDS))


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(_WIDEST), text) for name, (_, text) in commands.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        found = getattr(importlib.import_module(f"relive.cli.commands.{module}"), attribute or cmd_name)
        assert isinstance(found, click.Command)
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes the names of commands from the table, without importing their modules."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        rows = (item for commands in SECTIONS.values() for item in commands.items())
        return [CompletionItem(name, help=text) for name, (_, text) in rows if name.startswith(incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:  # fmt: skip
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=2, cutoff=0.5)
            hint = f"Did you mean {' or '.join(near)}?" if near else "`relive --help` lists the commands."
            ctx.fail(f"No such command {name!r}. {hint}")
        return super().resolve_command(ctx, args)

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
