"""What every endpoint shares: request bodies, error responses, and the threads that read the store."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.server.http.error_responses import HttpError, error_response, json_response
    from relive.server.http.request_body import BODY_BYTES, decompress_body, read_body
    from relive.server.http.store_threads import Indexer, Reader

__getattr__ = lazy_names(__name__)
