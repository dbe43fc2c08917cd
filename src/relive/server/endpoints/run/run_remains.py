"""Questions about what a run left: its checkpoints, its artifacts, and the calls that it remembered or reused."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from relive.errors import NotFound
from relive.model import SHORT_ID_DIGITS
from relive.server.endpoints.run.run_lookup import find_entry, find_record, journal_lines
from relive.server.endpoints.run.wire_values import clean_text, wire_value
from relive.store.catalog import Index
from relive.store.journal import line_schema

IMAGES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
}
TABLES = ("csv", "tsv")
_TEXTS = ("txt", "json", "jsonl", "yaml", "yml", "toml", "md", "log", "py", "cfg", "ini", "html", "xml", "svg", "sh")


def list_run_checkpoints(index: Index, run: str, offset: int, limit: int) -> dict[str, Any]:
    """Returns the checkpoints of a run with their sizes and contents, and how to restore the last one."""
    entry = find_entry(index, run)
    rows = index.checkpoints([entry]).get(entry.record.run, [])
    objects: dict[tuple[int, int], list[str]] = {}
    partial: dict[str, list[str]] = {}
    for rank, process, lines in journal_lines(index, entry.record.run):
        begun = line_schema.lines_of(line_schema.CheckpointingBegun, lines)
        objects[rank, process] = sorted({name for line in begun for name in line.objects})
        partial |= {line.manifest: _missing(line) for line in line_schema.lines_of(line_schema.CheckpointTaken, lines)}
    found = [
        {
            "loop": row.name, "place": row.place, "iteration": row.iterations - 1, "context": wire_value(row.at),
            "where": clean_text(row.where), "time": row.time_us / 1e6, "bytes": row.size_bytes,
            "new_bytes": row.new_bytes, "stall_s": row.stall_s, "write_s": row.write_s, "rank": row.rank,
            "objects": objects.get((row.rank, row.process), []), "partial": partial.get(row.manifest, []),
            "manifest": row.manifest,
        }
        for row in rows[offset : offset + limit]
    ]  # fmt: skip
    names = objects.get((0, 0), [])
    return {"checkpoints": found, "total": len(rows), "restore": _restore_snippet(entry.record.run, names)}


def _missing(line: line_schema.CheckpointTaken) -> list[str]:
    """Returns the state that a checkpoint does not hold, by name."""
    kinds = (line.left_out, line.left_around, line.unknown)
    return sorted({name for names in kinds if names is not UNSET for name in names})


def _restore_snippet(run: str, names: list[str]) -> str:
    into = ", ".join(f"{name}={name}" for name in names)
    return f'relive.restore("{run[:SHORT_ID_DIGITS]}", into=dict({into}))'


def list_memo(index: Index, run: str, offset: int, limit: int) -> dict[str, Any]:
    """Returns the memoized calls of a run, in order: reused, and from which run, or computed."""
    record = find_record(index, run)
    lines = [
        line
        for _, _, lines in journal_lines(index, record.run)
        for line in line_schema.lines_of(line_schema.CallRemembered, lines)
    ]
    return {
        "total": len(lines),
        "saved_s": sum(line.saved_s or 0.0 for line in lines if line.saved_s is not UNSET),
        "entries": [
            {
                "function": line.function, "key": line.key, "outcome": line.outcome, "from": line.from_ or None,
                "saved_s": line.saved_s or None, "took_s": line.took_s or None, "kept": line.kept or None,
            }
            for line in lines[offset : offset + limit]
        ],
    }  # fmt: skip


def list_artifacts(index: Index, run: str, offset: int, limit: int) -> dict[str, Any]:
    """Returns the artifacts of a run, with how each can be previewed; a folder also with its files."""
    artifacts = find_record(index, run).artifacts
    return {
        "total": len(artifacts),
        "artifacts": [
            {
                "name": clean_text(one["name"]), "bytes": one["size_bytes"], "kind": one["kind"],
                "type": one.get("type"), "preview": preview_kind(one["name"], one["kind"]),
                "files": [
                    {"path": clean_text(file["path"]), "bytes": file.get("size_bytes"),
                     "preview": preview_kind(file["path"], "file")}
                    for file in (one.get("files") or [])[:limit]
                ],
            }
            for one in artifacts[offset : offset + limit]
        ],
    }  # fmt: skip


def find_artifact(index: Index, run: str, name: str, file: str) -> dict[str, Any]:
    """Returns the pieces, size and base name of an artifact, or of one file of an artifact that is a folder."""
    found = next((one for one in find_record(index, run).artifacts if clean_text(one["name"]) == name), None)
    if found is None:
        raise NotFound(f"no artifact {name[:200]!r} in run {run}; /api/runs/{run}/artifacts lists them")
    if found["kind"] == "folder":
        inner = next((one for one in found.get("files") or [] if clean_text(one["path"]) == file), None)
        if inner is None:
            raise NotFound(f"{name[:200]!r} is a folder; add ?file= and the path of one of its files")
        return {"chunks": inner["chunks"], "name": file, "preview": preview_kind(file, "file")}
    return {"chunks": found["chunks"], "name": name, "preview": preview_kind(name, found["kind"])}


def preview_kind(name: str, kind: str) -> str:
    """Returns how a page may show an artifact: as text, image or table, or not at all."""
    if kind not in ("file", "folder"):
        return "text" if kind in ("json", "text") else "none"
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    if suffix in IMAGES:
        return "image"
    if suffix in TABLES:
        return "table"
    return "text" if suffix in _TEXTS and kind == "file" else "none"
