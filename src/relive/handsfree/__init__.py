"""Recording a script that never heard of relive: run as it would be, with its loops and log calls heard."""

from typing import TYPE_CHECKING

from relive.doors import lazily

if TYPE_CHECKING:
    from relive.handsfree.keras_loop import keras_callback
    from relive.handsfree.lightning_loop import enter_lightning, lightning_callback
    from relive.handsfree.running import locate, main_as_started, run
    from relive.handsfree.sources import SOURCES
    from relive.handsfree.start import Start
    from relive.handsfree.transformers_loop import enter_transformers, transformers_callback

__all__ = [
    "SOURCES",
    "Start",
    "enter_lightning",
    "enter_transformers",
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
        "keras_loop": "keras_callback",
        "lightning_loop": "enter_lightning lightning_callback",
        "running": "locate main_as_started run",
        "sources": "SOURCES",
        "start": "Start",
        "transformers_loop": "enter_transformers transformers_callback",
    },
)
