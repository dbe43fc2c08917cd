"""Sends runs to a server and fetches them from one: the client and server halves of upload and download."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.store.sync import run_fetch
    from relive.store.sync.audit_log import AuditLog, read_audit
    from relive.store.sync.chunk_uploads import MAX_CHUNK_BYTES, ChunkUploads, read_decoded
    from relive.store.sync.intake import Intake, IntakeBusy, StoreFull
    from relive.store.sync.journal_range import JournalRange, RangeConflict, RangeGap
    from relive.store.sync.pack_uploads import PackUploads, check_pack_name
    from relive.store.sync.remote_registry import RemoteChunks, RemoteRegistry
    from relive.store.sync.run_fetch import RunFetch
    from relive.store.sync.run_owners import NotOwner, Sender, owners_of
    from relive.store.sync.run_shipment import RunShipment, has_ended, is_recorded_as_sent, record_sent
    from relive.store.sync.server_client import RequestRefused, ServerClient, ServerUnreachable, translate_server_errors

__getattr__ = lazy_names(__name__)
