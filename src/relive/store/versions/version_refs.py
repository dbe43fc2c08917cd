"""The git refs that hold versions: their names, and how to parse the listing of `git for-each-ref`."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote

from relive.store.versions.git import EMAIL, text

REF_FORMAT = "%00".join(
    ("%(refname)", "%(objectname)", "%(tree)", "%(committeremail)", "%(worktreepath)", "%(contents)%01")
)
REF_PREFIXES = ("refs/heads/relive", "refs/relive-versions")


class Tip(NamedTuple):
    """The commit that one of our refs points to: a version, or a commit of the user (then `ours` is False)."""

    ref: str
    id: str
    tree: str
    head: str | None
    ours: bool = True
    checked_out: bool = False


def refs_for(stem: str) -> tuple[str, str]:
    """Returns the visible branch, and a fallback outside refs/heads that can't clash with a branch of the user."""
    flat = quote(stem, safe="", errors="surrogateescape")
    return f"refs/heads/relive/{stem}", f"refs/relive-versions/{flat}"


def read_tips(listing: bytes, stem: str) -> dict[str, Tip]:
    """Returns our refs for a branch from the output of `for-each-ref`."""
    records = (record.split("\0", 5) for record in text(listing).split("\x01\n"))
    refs = refs_for(stem)
    return {record[0]: _parse_tip(record) for record in records if len(record) == 6 and record[0] in refs}


def _parse_tip(record: list[str]) -> Tip:
    ref, id, tree, email, work_tree, message = record
    head = re.search(r"^relive-head: (\w+)$", message, re.MULTILINE)
    return Tip(ref, id, tree, head and head[1], ours=email == f"<{EMAIL}>", checked_out=bool(work_tree))
