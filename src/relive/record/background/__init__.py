"""Background logging: calls of any writer return as soon as their arguments are copied."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.record.background.background_writer import background
    from relive.record.background.writer_proxy import Background

__getattr__ = lazy_names(__name__)
