"""Questions about what a run printed: its lines, page by page, and where some are missing."""

from __future__ import annotations

from typing import Any

from relive.query import console_json
from relive.server.endpoints.run.run_lookup import find_record
from relive.store.catalog import Index


def read_run_console(index: Index, run: str, rank: int, offset: int, limit: int) -> dict[str, Any]:
    """Returns lines of a rank's console from `offset` on."""
    record = find_record(index, run)
    return console_json(index.home.run_folder(record.run), rank, offset=offset, limit=limit)
