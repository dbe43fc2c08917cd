"""`relive ui`: the page of a home, on this machine, for its user."""

from __future__ import annotations

import getpass
import os
import sys
import threading
import webbrowser
from pathlib import Path

import click

from relive.cli.commands.ui.replay_asker import ReplayAsker
from relive.cli.targets import home_option
from relive.record.process import read_launch_context
from relive.server import show
from relive.store import Home


@click.command()
@click.option("--no-browser", is_flag=True, help="Print the address and open no browser.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port to listen on; 0 chooses a free one "
              "(default: 5006, or a free one if that is taken).")  # fmt: skip
@home_option
def ui(no_browser: bool, port: int | None, home: Path | None) -> None:
    """Show the runs of the current home in a browser, live. Only this machine can reach the page.

    The first line printed is the address. It lets one browser in, once. Stops on Ctrl-C or SIGTERM.
    """
    place = Home(home.absolute()) if home is not None else read_launch_context().home
    if not place.runs.is_dir():
        place.create()
        click.echo(f"no runs in {place.path} yet; they appear as soon as they are recorded", err=True)

    def announce(url: str) -> None:
        click.echo(url)
        sys.stdout.flush()
        if no_browser or not _has_display():
            click.echo("open this address in a browser; Ctrl-C stops", err=True)
        else:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
            click.echo("the browser opens; Ctrl-C stops", err=True)

    show(place, _user(), port=port, announce=announce, asker=ReplayAsker(place))


def _user() -> str:
    """Returns the name of the account; changes made on the page carry it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # an account without a name, as in some containers
        return str(os.getuid())


def _has_display() -> bool:
    """Whether a browser with a window can be opened: one in the terminal would take it away from us."""
    named = any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"))
    return named or sys.platform in ("darwin", "win32")
