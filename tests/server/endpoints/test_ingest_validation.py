"""Lines from outside are measured before they are read."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import relive.server.endpoints.ingest_validation as ingest_validation
from relive.server.endpoints.ingest_validation import nesting

VALUES = st.recursive(
    st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(VALUES, st.text(alphabet='"\\[]{}a'), st.integers(1, 40))
def test_the_depth_of_a_line_is_found_without_reading_it(value: Any, text: str, part_bytes: int):
    line = [value, text, *[[]] * (ingest_validation.MAX_NESTING + 1)]
    kept, ingest_validation._PART_BYTES = ingest_validation._PART_BYTES, part_bytes
    try:
        assert nesting(json.dumps(line).encode()) == depth_of(line)
    finally:
        ingest_validation._PART_BYTES = kept
