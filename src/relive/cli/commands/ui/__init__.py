"""`relive ui`: the page of the current home, and the replays that a page asks for."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.cli.commands.ui.replay_asker import ReplayAsker

__getattr__ = lazy_names(__name__)
