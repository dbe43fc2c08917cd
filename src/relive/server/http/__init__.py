"""What every endpoint shares: connections, request bodies, error responses, and how much one token may use."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.server.http.admission import LEASE, Admission, Lease, lease_of
    from relive.server.http.compact_responses import compact_response
    from relive.server.http.connection_guard import CONNECTION, Door, GuardedConnection
    from relive.server.http.error_responses import HttpError, error_response, json_bytes_response, json_response
    from relive.server.http.known_parameters import refuse_unknown
    from relive.server.http.request_body import BODY_BYTES, decode_json_body, decompress_body, read_body

__getattr__ = lazy_names(__name__)
