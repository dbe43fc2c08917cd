"""Bytes at rest: journals, chunks, code versions, and the index derived from them."""

from typing import TYPE_CHECKING

from relive.doors import lazily

if TYPE_CHECKING:
    from relive.store import artifacts, fetching, kinds, registry, sources, versions
    from relive.store.asking import Asking, ask
    from relive.store.catalog import is_database
    from relive.store.checkpoint_files import checkpoint_files
    from relive.store.checkpoints import CheckpointRow, candidates, checkpoint_rows, choose
    from relive.store.chunks import PIECE_BYTES, Chunks
    from relive.store.collecting import Claims, Report, collect, preview
    from relive.store.contact import is_shipped
    from relive.store.examining import examine
    from relive.store.family import parse_run
    from relive.store.fetching import Fetch
    from relive.store.home import REPLAYS, Home, JournalName, journals_in
    from relive.store.index import Index, RunEntry, as_read, find_run, read_run
    from relive.store.intake import Busy, Gap, Held, Intake, Range, StoreFull
    from relive.store.journal import MAGIC, ROOT, SLOT_BYTES, Journal, JournalClosed
    from relive.store.ledger import add_lines, read_all_lines
    from relive.store.lines import read_lines
    from relive.store.liveness import age_s, is_alive, process_start
    from relive.store.memos import MemoRow, Memos, MissRow, sealed
    from relive.store.pack_uploads import PackUploads, checked_name
    from relive.store.packs import Packs, PackWriter, Piece, digest_of
    from relive.store.parsing import LoopRow, Parsed, parse
    from relive.store.pins import is_pinned, pin, unpin
    from relive.store.plain import plain_number, plain_text, plain_value
    from relive.store.points import Points
    from relive.store.promoting import Promotion, promote
    from relive.store.reading import slots_bytes
    from relive.store.registry import Model, ModelVersion, Registry
    from relive.store.remote import Away, Refused, Remote, with_remedy
    from relive.store.remote_registry import RemoteChunks, RemoteRegistry
    from relive.store.replays import REPLAY_CHOICES, replay_header
    from relive.store.restores import note_restore, restore_speed
    from relive.store.retention import Policy
    from relive.store.scattering import read_all
    from relive.store.shipping import Shipment, has_ended, is_noted, note_sent
    from relive.store.spooling import kept_outside
    from relive.store.summaries import TAIL, Summary
    from relive.store.tombstones import kept_checkpoints
    from relive.store.uploads import Uploads
    from relive.store.values import decode, encode, from_text, inline, safe_repr, to_text
    from relive.store.version_files import VersionFiles

__all__ = [
    "MAGIC",
    "PIECE_BYTES",
    "REPLAYS",
    "REPLAY_CHOICES",
    "ROOT",
    "SLOT_BYTES",
    "TAIL",
    "Asking",
    "Away",
    "Busy",
    "CheckpointRow",
    "Chunks",
    "Claims",
    "Fetch",
    "Gap",
    "Held",
    "Home",
    "Index",
    "Intake",
    "Journal",
    "JournalClosed",
    "JournalName",
    "LoopRow",
    "MemoRow",
    "Memos",
    "MissRow",
    "Model",
    "ModelVersion",
    "PackUploads",
    "PackWriter",
    "Packs",
    "Parsed",
    "Piece",
    "Points",
    "Policy",
    "Promotion",
    "Range",
    "Refused",
    "Registry",
    "Remote",
    "RemoteChunks",
    "RemoteRegistry",
    "Report",
    "RunEntry",
    "Shipment",
    "StoreFull",
    "Summary",
    "Uploads",
    "VersionFiles",
    "add_lines",
    "age_s",
    "artifacts",
    "as_read",
    "ask",
    "candidates",
    "checked_name",
    "checkpoint_files",
    "checkpoint_rows",
    "choose",
    "collect",
    "decode",
    "digest_of",
    "encode",
    "examine",
    "fetching",
    "find_run",
    "from_text",
    "has_ended",
    "inline",
    "is_alive",
    "is_database",
    "is_noted",
    "is_pinned",
    "is_shipped",
    "journals_in",
    "kept_checkpoints",
    "kept_outside",
    "kinds",
    "note_restore",
    "note_sent",
    "parse",
    "parse_run",
    "pin",
    "plain_number",
    "plain_text",
    "plain_value",
    "preview",
    "process_start",
    "promote",
    "read_all",
    "read_all_lines",
    "read_lines",
    "read_run",
    "registry",
    "replay_header",
    "restore_speed",
    "safe_repr",
    "sealed",
    "slots_bytes",
    "sources",
    "to_text",
    "unpin",
    "versions",
    "with_remedy",
]

# Recording needs the journal, not the index; `import relive` needs neither.
__getattr__ = lazily(
    __name__,
    {
        "asking": "Asking ask",
        "checkpoint_files": "checkpoint_files",
        "checkpoints": "CheckpointRow candidates checkpoint_rows choose",
        "catalog": "is_database",
        "chunks": "PIECE_BYTES Chunks",
        "collecting": "Claims Report collect preview",
        "contact": "is_shipped",
        "examining": "examine",
        "family": "parse_run",
        "fetching": "Fetch",
        "home": "REPLAYS Home JournalName journals_in",
        "index": "Index RunEntry as_read find_run read_run",
        "intake": "Busy Gap Held Intake Range StoreFull",
        "journal": "MAGIC ROOT SLOT_BYTES Journal JournalClosed",
        "ledger": "add_lines read_all_lines",
        "lines": "read_lines",
        "liveness": "age_s is_alive process_start",
        "memos": "MemoRow Memos MissRow sealed",
        "pack_uploads": "PackUploads checked_name",
        "packs": "PackWriter Packs Piece digest_of",
        "parsing": "LoopRow Parsed parse",
        "pins": "is_pinned pin unpin",
        "plain": "plain_number plain_text plain_value",
        "points": "Points",
        "promoting": "Promotion promote",
        "reading": "slots_bytes",
        "registry": "Model ModelVersion Registry",
        "remote": "Away Refused Remote with_remedy",
        "remote_registry": "RemoteChunks RemoteRegistry",
        "replays": "REPLAY_CHOICES replay_header",
        "restores": "note_restore restore_speed",
        "retention": "Policy",
        "scattering": "read_all",
        "shipping": "Shipment has_ended is_noted note_sent",
        "spooling": "kept_outside",
        "summaries": "TAIL Summary",
        "tombstones": "kept_checkpoints",
        "uploads": "Uploads",
        "values": "decode encode from_text inline safe_repr to_text",
        "version_files": "VersionFiles",
    },
)
