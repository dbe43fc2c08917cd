"""Bytes at rest: the layout of a home, and the rooms that keep journals, chunks, versions and what is derived."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.store.disk_errors import telling_disk_errors
    from relive.store.durable_files import atomic_write, make_folder, read_sealed, write_sealed
    from relive.store.home import REPLAY_OFFSET, Home, JournalName, list_journals
    from relive.store.ledger import append_lines, read_all_lines
    from relive.store.trust import (
        describe_origin,
        find_origin,
        is_trusted,
        listed,
        refusal,
        require_trust,
        revoke_trust,
        trust_home,
        trust_server,
        trusted_list,
    )

__getattr__ = lazy_names(__name__)
