"""Where our versions stand in a repository: the refs that are ours, and how git tells of them."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote

from relive.store.versions.git import EMAIL, text

FORMAT = "%00".join(
    ("%(refname)", "%(objectname)", "%(tree)", "%(committeremail)", "%(worktreepath)", "%(contents)%01")
)
FOLDERS = ("refs/heads/relive", "refs/relive-versions")


class Tip(NamedTuple):
    """The newest version on one of our branches, or what someone else put there."""

    ref: str
    id: str
    tree: str
    head: str | None
    ours: bool = True
    checked_out: bool = False


def refs_of(stem: str) -> tuple[str, str]:
    """The branch that people see, and a flat name that neither clashes with a branch of theirs nor shadows one."""
    flat = quote(stem, safe="", errors="surrogateescape")
    return f"refs/heads/relive/{stem}", f"refs/relive-versions/{flat}"


def read_tips(listing: bytes, stem: str) -> dict[str, Tip]:
    """Our refs for a branch, from what `for-each-ref` lists."""
    records = (record.split("\0", 5) for record in text(listing).split("\x01\n"))
    refs = refs_of(stem)
    return {record[0]: _tip(record) for record in records if len(record) == 6 and record[0] in refs}


def _tip(record: list[str]) -> Tip:
    ref, id, tree, email, work_tree, message = record
    head = re.search(r"^relive-head: (\w+)$", message, re.MULTILINE)
    return Tip(ref, id, tree, head and head[1], ours=email == f"<{EMAIL}>", checked_out=bool(work_tree))
