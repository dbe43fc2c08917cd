"""Questions to past runs: planned, priced and replayed by whoever started the server, if at all."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.server.endpoints.ask.ask_endpoints import AskEndpoints
    from relive.server.endpoints.ask.asker import Asker

__getattr__ = lazy_names(__name__)
