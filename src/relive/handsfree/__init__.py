"""Recording a script that never heard of relive: run as it would be, with its loops and log calls heard."""

from typing import TYPE_CHECKING

from relive.doors import lazily

if TYPE_CHECKING:
    from relive.handsfree.running import locate, main_as_started, run
    from relive.handsfree.sources import SOURCES
    from relive.handsfree.start import Start

__all__ = ["SOURCES", "Start", "locate", "main_as_started", "run"]

__getattr__ = lazily(__name__, {"running": "locate main_as_started run", "sources": "SOURCES", "start": "Start"})
