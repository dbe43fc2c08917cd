"""The endpoints of the HTTP API, by subject."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.server.endpoints.comparisons import ComparisonEndpoints
    from relive.server.endpoints.console_upload import ConsoleEndpoints
    from relive.server.endpoints.ingest import IngestEndpoints
    from relive.server.endpoints.login_session import SessionEndpoint
    from relive.server.endpoints.pack_upload import PackEndpoints
    from relive.server.endpoints.run_download import DownloadEndpoints
    from relive.server.endpoints.runs import RunEndpoints
    from relive.server.endpoints.scrub_requests import ScrubEndpoints

__getattr__ = lazy_names(__name__)
