"""`relive doctor` and `relive export`: checks of a home, and a run as a folder of plain files."""

from __future__ import annotations

from pathlib import Path

import click

from relive.cli.commands.query_commands import write_parquet
from relive.cli.targets import home_option, open_home, open_index, short_id
from relive.errors import ReliveError
from relive.store import Home
from relive.store.catalog import Index, RunEntry, find_run
from relive.store.chunks import Chunks, artifact_files
from relive.store.gc import check_home
from relive.store.journal import from_json, inline_chunks, to_json
from relive.store.versions import version_checkout


@click.command()
@click.option("--rebuild", is_flag=True, help="Discard the index and rebuild it from the journals.")
@click.option("--deep", is_flag=True, help="Also read every chunk and verify its hash.")
@home_option
def doctor(rebuild: bool, deep: bool, home: Path | None) -> None:
    """Check every journal and the chunks it refers to. Exit code 1 if anything is damaged."""
    place = open_home(home)
    damaged = False
    for finding in check_home(place, deep=deep):
        damaged = damaged or finding.damage
        click.echo(f"{short_id(finding.run)}  {finding.text}")
    index = Index(place)
    if rebuild:
        index.rebuild()
        click.echo("the index was rebuilt from the journals")
    click.echo(f"{len(index.runs())} runs in {place.path}, {'some damaged' if damaged else 'all readable'}")
    raise SystemExit(1 if damaged else 0)


@click.command()
@click.argument("run")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@home_option
def export(run: str, folder: Path | None, home: Path | None) -> None:
    """Write RUN to FOLDER as plain files: record.json, logs.parquet, artifacts/, code/."""
    from relive.query import QueryEngine

    index = open_index(home)
    entry = find_run(index.runs(), run)
    target = folder or Path(f"run-{short_id(entry.record.run)}")
    if target.exists() and any(target.iterdir()):
        raise ReliveError(f"{target} is not empty; name another folder")
    target.mkdir(parents=True, exist_ok=True)
    chunks = Chunks(index.home.chunks)
    (target / "record.json").write_text(to_json(inline_chunks(from_json(to_json(entry.record)), chunks.get)))
    logs = QueryEngine(index.home).sql(f"select * from logs where run = '{entry.record.run}'").df()
    write_parquet(logs, target / "logs.parquet")
    count = _write_artifacts(entry, chunks, target / "artifacts")
    code = _write_code(index.home, entry, target / "code")
    click.echo(f"{target}: the record, {len(logs)} values, {count} artifacts{', the code' if code else ''}")


def _write_artifacts(entry: RunEntry, chunks: Chunks, target: Path) -> int:
    for artifact in entry.record.artifacts:
        path = artifact_files.write_artifact(artifact, chunks, target)
        if artifact["kind"] == "json":  # it may refer to further chunks
            path.write_text(to_json(inline_chunks(from_json(path.read_bytes()), chunks.get)))
    return len(entry.record.artifacts)


def _write_code(home: Home, entry: RunEntry, target: Path) -> bool:
    if not entry.record.version:
        return False
    version_checkout.checkout(home, entry.record.code, target)
    return True
