"""What every endpoint shares: request bodies, error responses, and the threads that read the store."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.server.http.error_responses import Problem, answer, answer_to
    from relive.server.http.request_body import BODY_BYTES, read_body, unpack
    from relive.server.http.store_threads import Indexer, Reader

__getattr__ = lazy_names(__name__)
