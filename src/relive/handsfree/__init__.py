"""Recording a script that never heard of relive: run as it would be, with its loops and log calls heard."""

from typing import TYPE_CHECKING

from relive.doors import lazily

if TYPE_CHECKING:
    from relive.handsfree.frameworks import keras_callback, lightning_callback, transformers_callback
    from relive.handsfree.running import locate, main_as_started, run
    from relive.handsfree.sources import SOURCES
    from relive.handsfree.start import Start

__all__ = [
    "SOURCES",
    "Start",
    "keras_callback",
    "lightning_callback",
    "locate",
    "main_as_started",
    "run",
    "transformers_callback",
]

__getattr__ = lazily(
    __name__,
    {
        "frameworks": "keras_callback lightning_callback transformers_callback",
        "running": "locate main_as_started run",
        "sources": "SOURCES",
        "start": "Start",
    },
)
