"""Content-addressed bytes: chunks, packs of checkpoint pieces, and the files and tables that refer to them."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.store.chunks import artifact_files
    from relive.store.chunks.artifact_files import artifact_chunks, missing_chunks
    from relive.store.chunks.checkpoint_files import list_checkpoint_files
    from relive.store.chunks.checkpoint_rows import (
        CheckpointRow,
        checkpoint_from_columns,
        checkpoint_to_columns,
        list_checkpoints,
        restore_candidates,
    )
    from relive.store.chunks.chunk_store import PIECE_BYTES, PLAIN_CHUNK, ZSTD_CHUNK, Chunks, is_digest
    from relive.store.chunks.memo_rows import MemoRow, MissRow
    from relive.store.chunks.memo_table import MemoTable
    from relive.store.chunks.object_stores import ObjectStore, check_object_store_address, open_object_store
    from relive.store.chunks.offload_notes import (
        OFFLOAD_FORMAT,
        OFFLOAD_SUFFIX,
        RETIRED_SUFFIX,
        OffloadNote,
        find_note,
        measure_parts,
        read_note,
        write_note,
    )
    from relive.store.chunks.packs import PACK_MAGIC, Packs, PackWriter, Piece, pack_file_digest, piece_digest
    from relive.store.chunks.references import (
        CheckpointKey,
        Doubt,
        References,
        ReferenceScanner,
        named_chunks,
        names_in_content,
    )
    from relive.store.chunks.restore_timings import record_restore, restore_speed
    from relive.store.chunks.tombstones import drop_checkpoints, list_kept_checkpoints, without_dropped
    from relive.store.chunks.vectored_read import read_pieces

__getattr__ = lazy_names(__name__)
