"""Append-only journals: how a run is written, read back, and summarised as a record."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.store.journal import line_schema, slot_kinds
    from relive.store.journal.journal_file import (
        ROOT,
        SLOT_BYTES,
        SLOTS_MAGIC,
        Journal,
        JournalClosed,
    )
    from relive.store.journal.journal_parser import ParsedJournal, ParseProgress, parse_appended, parse_journal
    from relive.store.journal.line_reader import LineFollower, first_line, read_lines
    from relive.store.journal.line_schema import encode_line
    from relive.store.journal.liveness import (
        is_process_alive,
        is_shipped,
        mark_for_reindexing,
        process_age_s,
        process_start_stamp,
        record_heartbeat,
    )
    from relive.store.journal.loop_context import TABLE_ROOM, LoopRow
    from relive.store.journal.plain_json import decode_or_describe, finite_or_none, plain_value, plain_value_from_json
    from relive.store.journal.record_builder import (
        RECORD_KINDS,
        build_record,
        complete_record,
        describe_losses,
        is_live,
        recorded_variables,
    )
    from relive.store.journal.run_journals import RunJournals, parse_run
    from relive.store.journal.slot_reader import (
        count_written_slots,
        encode_slots,
        has_line_slots,
        read_slots,
        seal_fields,
    )
    from relive.store.journal.value_codec import (
        Redaction,
        decode_value,
        encode_value,
        from_json,
        inline_chunks,
        safe_repr,
        to_json,
    )

__getattr__ = lazy_names(__name__)
