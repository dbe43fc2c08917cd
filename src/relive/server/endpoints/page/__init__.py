"""Endpoints that the web page reads: tables of runs, curves, and events."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.server.endpoints.page.curves import CurveEndpoints
    from relive.server.endpoints.page.event_streams import EventEndpoints
    from relive.server.endpoints.page.run_tables import TableEndpoints
    from relive.server.endpoints.page.shared_answers import SharedAnswers

__getattr__ = lazy_names(__name__)
