"""`relive doctor` and `relive export`: is everything readable, and a run as a folder of plain files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relive.cli.choosing import home_option, open_home, open_index, short
from relive.cli.queries import write_parquet
from relive.errors import ReliveError
from relive.store import Chunks, Home, Index, RunEntry, examine, find_run, from_text, inline, to_text, versions


@click.command()
@click.option("--rebuild", is_flag=True, help="Throw the index away and make it again from the journals.")
@click.option("--deep", is_flag=True, help="Also read every chunk and compare it with its hash.")
@home_option
def doctor(rebuild: bool, deep: bool, home: Path | None) -> None:
    """Check every journal, and the chunks that they name. Exit code 1 if something is damaged."""
    place = open_home(home)
    damaged = False
    for finding in examine(place, deep=deep):
        damaged = damaged or finding.damage
        click.echo(f"{short(finding.run)}  {finding.text}")
    index = Index(place)
    if rebuild:
        index.rebuild()
        click.echo("the index was made again from the journals")
    click.echo(f"{len(index.runs())} runs in {place.path}, {'some damaged' if damaged else 'all readable'}")
    raise SystemExit(1 if damaged else 0)


@click.command()
@click.argument("run")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@home_option
def export(run: str, folder: Path | None, home: Path | None) -> None:
    """Write RUN to FOLDER as plain files: record.json, logs.parquet, artifacts/, code/."""
    from relive.query import Query

    index = open_index(home)
    entry = find_run(index.runs(), run)
    target = folder or Path(f"run-{short(entry.record.run)}")
    if target.exists() and any(target.iterdir()):
        raise ReliveError(f"{target} is not empty; name another folder")
    target.mkdir(parents=True, exist_ok=True)
    chunks = Chunks(index.home.chunks)
    (target / "record.json").write_text(to_text(inline(from_text(to_text(entry.record)), chunks.get)))
    logs = Query(index.home.path).sql(f"select * from logs where run = '{entry.record.run}'").df()
    write_parquet(logs, target / "logs.parquet")
    count = _write_artifacts(entry, chunks, target / "artifacts")
    code = _write_code(index.home, entry, target / "code")
    click.echo(f"{target}: the record, {len(logs)} values, {count} artifacts{', the code' if code else ''}")


def _write_artifacts(entry: RunEntry, chunks: Chunks, target: Path) -> int:
    for artifact in entry.record.artifacts:
        if artifact["kind"] == "folder":
            for file in artifact["files"]:
                _write_file(chunks, file, confined(target / _safe(artifact["name"]), file["path"]))
        else:
            path = confined(target, artifact["name"])
            _write_file(chunks, artifact, path)
            if artifact["kind"] == "json":  # it may name further chunks
                path.write_text(to_text(inline(from_text(path.read_bytes()), chunks.get)))
    return len(entry.record.artifacts)


def _write_file(chunks: Chunks, described: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for name in described["chunks"]:
            file.write(chunks.get(name))


def _safe(name: str) -> str:
    return name.replace("/", "_").replace("\\", "_").replace("\0", "_").lstrip(".") or "artifact"


def confined(folder: Path, name: str) -> Path:
    """A path below the folder, whatever the name says."""
    parts = [_safe(part) for part in name.split("/") if part not in ("", ".", "..")]
    return folder.joinpath(*parts or ["artifact"])


def _write_code(home: Home, entry: RunEntry, target: Path) -> bool:
    code = entry.record.code
    if not code.get("version"):
        return False
    repository = Path(code["repository"])
    if not repository.exists():  # a private repository moves with its home
        repository = home.path / repository.name
    versions.materialise(code["version"], repository=repository, into=target)
    return True
