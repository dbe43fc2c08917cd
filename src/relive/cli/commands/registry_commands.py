"""`relive promote`, `registry`, `alias`, `rollback`, `retire`, `download`: the model registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relive.cli.completion import complete_runs
from relive.cli.display import format_size, format_time, format_value
from relive.cli.targets import (
    home_option,
    json_option,
    open_home,
    open_index,
    open_registry,
    server_option,
    short_id,
    tell,
)
from relive.cli.terminal_table import TerminalColumn, columns_of, print_table, table_options
from relive.errors import ReliveError
from relive.record.process import read_launch_context, select_server
from relive.store.chunks import Chunks, artifact_files
from relive.store.journal import to_json
from relive.store.registry import Model, ModelVersion, Promotion, Registry, model_registry, promote
from relive.store.sync import RemoteChunks, RemoteRegistry


@click.command(name="promote")
@click.argument("run", shell_complete=complete_runs)
@click.argument("model")
@click.option("--artifact", help="The artifact that is the model; required if the run has several.")
@click.option("--alias", "aliases", multiple=True, help="Point this alias to the new version; may be repeated.")
@click.option("--note", default="", help="A note for the history.")
@click.option("--force", is_flag=True, help="Promote a run with an incomplete record; what is missing is recorded.")
@json_option
@home_option
@server_option
def promote_command(home: Path | None, server: str | None, as_json: bool, **options: Any) -> None:
    """Make RUN the next version of MODEL, bound to its args, code, data, metrics and artifact."""
    remote, promotion = select_server(home, server), Promotion(**options)
    promoted = promote(open_index(home), promotion) if remote is None else RemoteRegistry(remote).promote(promotion)
    pointing = f", {' and '.join(options['aliases'])}" if options["aliases"] else ""
    tell(
        f"{promoted.reference} is run {short_id(promoted.run)}{pointing}", as_json=as_json,
        **_version_fields(promoted), aliases=list(options["aliases"]), missing=list(promoted.missing),
    )  # fmt: skip
    if as_json:
        return
    for missing in promoted.missing:
        click.echo(f"recorded as missing: {missing}", err=True)


@click.command()
@click.argument("model", required=False)
@click.option("--history", is_flag=True, help="Show the history of MODEL: promotions, alias changes, retired versions.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@table_options
@home_option
@server_option
def registry(
    model: str | None, history: bool, as_json: bool, picked: str | None, wide: bool, home: Path | None,
    server: str | None,
) -> None:  # fmt: skip
    """List the models, or the versions of MODEL, newest first."""
    place = open_registry(home, server)
    if history and model is None:
        raise ReliveError("--history needs a model; write relive registry MODEL --history")
    models = place.models() if model is None else [place.model(model)]
    if as_json:
        rows = (
            model_registry.history_to_json(models[0])
            if history
            else [model_registry.model_to_json(one) for one in models]
        )
        for row in rows:
            click.echo(to_json(row))
        return
    if not models:
        click.echo("no models yet; promote a run with `relive promote RUN MODEL`", err=True)
        return
    columns = _history_columns(models[0]) if history else _version_columns(models[0]) if model else None
    print_table(columns or _model_columns(models), picked=picked, wide=wide)


def _model_columns(models: list[Model]) -> list[TerminalColumn]:
    aliases = [" ".join(f"{alias}={number}" for alias, number in model.aliases.items()) for model in models]
    newest = [model.versions[-1] for model in models]
    return [
        TerminalColumn("model", [model.name for model in models], rank=0),
        TerminalColumn("versions", [str(len(model.versions)) for model in models], is_number=True, stays=True),
        TerminalColumn("aliases", aliases, is_cut=True, stays=True),
        TerminalColumn("newest", [f"run {short_id(one.run)}" for one in newest], rank=2),
        TerminalColumn("when", [format_time(one.time_us) for one in newest], rank=3),
    ]


_VERSION_COLUMNS = (
    TerminalColumn("version", rank=0),
    TerminalColumn("aliases", stays=True),
    TerminalColumn("when", rank=2),
    TerminalColumn("run", stays=True),
    TerminalColumn("artifact", rank=4, is_cut=True),
    TerminalColumn("data", rank=3, is_cut=True),
    TerminalColumn("code", rank=3),
    TerminalColumn("metrics", rank=2, is_cut=True),
    TerminalColumn("note", rank=2, is_cut=True),
)


def _version_columns(model: Model) -> list[TerminalColumn]:
    rows = []
    for one in reversed(model.versions):
        aliases = " ".join(model.aliases_of(one.version)) or ("retired" if one.is_retired else "")
        note = "; ".join([*([one.note] if one.note else []), *(f"missing: {text}" for text in one.missing)])
        code = str(one.code.get("version") or "none")[:12]
        cells = [str(one.version), aliases, format_time(one.time_us), short_id(one.run), _format_artifact(one)]
        rows.append([*cells, one.data_version or "unknown", code, _format_metrics(one), note])
    return columns_of(_VERSION_COLUMNS, rows)


def _format_metrics(one: ModelVersion) -> str:
    return " ".join(f"{name}={format_value(summary['last'])}" for name, summary in list(one.metrics.items())[:6])


def _format_artifact(one: ModelVersion) -> str:
    if one.artifact is None:
        return "none"
    return f"{one.artifact['name']} {format_size(one.artifact['size_bytes'])} {one.artifact['digest'][:12]}"


def _history_columns(model: Model) -> list[TerminalColumn]:
    rows = []
    for event in model_registry.history_to_json(model):
        if event["event"] == "version":
            note = f": {event['note']}" if event.get("note") else ""
            what = f"version {event['version']} from run {short_id(event['run'])}{note}"
        elif event["event"] == "alias":
            was = f", was {event['before']}" if event["before"] else ""
            what = f"{event['alias']} → {event['version']}{was}{' (rollback)' if event['how'] == 'rollback' else ''}"
        else:
            what = f"version {event['version']} retired"
        rows.append([format_time(event["time_us"]), what, event["by"]])
    return columns_of(
        [TerminalColumn("when", rank=0), TerminalColumn("what", rank=0), TerminalColumn("by", stays=True)], rows
    )


@click.command()
@click.argument("reference", metavar="MODEL@VERSION")
@click.argument("alias")
@json_option
@home_option
@server_option
def alias(reference: str, alias: str, as_json: bool, home: Path | None, server: str | None) -> None:
    """Point ALIAS to a version: `relive alias my-model@candidate production`."""
    place = open_registry(home, server)
    found = place.find(reference)
    place.point(found.model, alias, found.version)
    said = f"{found.model}@{alias} is now version {found.version}, run {short_id(found.run)}"
    tell(said, as_json=as_json, **_version_fields(found), alias=alias)


@click.command()
@click.argument("reference", metavar="MODEL@ALIAS")
@json_option
@home_option
@server_option
def rollback(reference: str, as_json: bool, home: Path | None, server: str | None) -> None:
    """Point an alias to its previous version; repeat to go back further."""
    name, word = model_registry.split_reference(reference)
    if word == model_registry.LATEST or word.isdecimal():
        raise ReliveError(f"{reference!r} does not name an alias; write for example {name}@production")
    found = open_registry(home, server).roll_back(name, word)
    said = f"{name}@{word} is version {found.version} again, run {short_id(found.run)}"
    tell(said, as_json=as_json, **_version_fields(found), alias=word)


@click.command()
@click.argument("reference", metavar="MODEL@VERSION")
@json_option
@home_option
@server_option
def retire(reference: str, as_json: bool, home: Path | None, server: str | None) -> None:
    """Retire a version: its run may then be removed, and `relive gc` may free data that only it used."""
    place = open_registry(home, server)
    found = place.find(reference)
    place.retire(found.model, found.version)
    said = f"{found.reference} is retired and no longer protects run {short_id(found.run)}"
    tell(said, as_json=as_json, **_version_fields(found), is_retired=True)


def _version_fields(found: ModelVersion) -> dict[str, Any]:
    return {"model": found.model, "version": found.version, "run": found.run}


@click.command()
@click.argument("reference", metavar="MODEL[@VERSION]")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@json_option
@home_option
@server_option
def download(reference: str, folder: Path, as_json: bool, home: Path | None, server: str | None) -> None:
    """Write the artifact of a version to FOLDER and verify its hash. VERSION is an alias or a number."""
    found, chunks = _find_version(reference, home, server)
    artifact = found.require_artifact()
    target = artifact_files.path_inside(folder, artifact["name"])
    if target.exists() and not artifact_files.is_intact(artifact, target):
        raise ReliveError(f"{target} exists and has different content; name another folder")
    path = artifact_files.write_artifact(artifact, chunks, folder)
    tell(
        f"{found.reference}: {path} ({format_size(artifact['size_bytes'])}, {artifact['digest'][:12]})",
        as_json=as_json, **_version_fields(found), path=str(path), size_bytes=artifact["size_bytes"],
        digest=artifact["digest"],
    )  # fmt: skip


def _find_version(reference: str, home: Path | None, server: str | None) -> tuple[ModelVersion, Chunks]:
    """Returns the version for a reference, and the chunks of its artifact."""
    remote = select_server(home, server)
    if remote is None:
        place = open_home(home)
        return Registry(place).find(reference), Chunks(place.chunks)
    return RemoteRegistry(remote).find(reference), RemoteChunks(remote, Chunks(read_launch_context().home.chunks))
