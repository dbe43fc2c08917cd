"""`relive promote`, `registry`, `alias`, `rollback`, `retire`, `download`: runs as models that others ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relive.cli.display import size, value, when
from relive.cli.targets import home_option, make_console, open_home, open_index, open_registry, server_option, short
from relive.errors import ReliveError
from relive.record.process import chosen_server, read_launch_context
from relive.store.chunks import Chunks, artifact_files
from relive.store.journal import to_text
from relive.store.registry import Model, ModelVersion, Promotion, Registry, promote
from relive.store.registry import model_registry as words
from relive.store.sync import RemoteChunks, RemoteRegistry


@click.command(name="promote")
@click.argument("run")
@click.argument("model")
@click.option("--artifact", help="Which of the run's artifacts is the model; needed if it kept several.")
@click.option("--alias", "aliases", multiple=True, help="Let this alias point to it; may be repeated.")
@click.option("--note", default="", help="A sentence for the history.")
@click.option("--force", is_flag=True, help="Promote a run whose record is incomplete; what is missing is noted.")
@home_option
@server_option
def promote_command(home: Path | None, server: str | None, **asked: Any) -> None:
    """Make RUN the next version of MODEL, bound to its args, code, data, metrics and artifact."""
    remote, promotion = chosen_server(home, server), Promotion(**asked)
    made = promote(open_index(home), promotion) if remote is None else RemoteRegistry(remote).promote(promotion)
    pointing = f", {' and '.join(asked['aliases'])}" if asked["aliases"] else ""
    click.echo(f"{made.reference} is run {short(made.run)}{pointing}")
    for missing in made.missing:
        click.echo(f"noted as missing: {missing}", err=True)


@click.command()
@click.argument("model", required=False)
@click.option(
    "--history", is_flag=True, help="What happened to MODEL: promotions, aliases that moved, versions given up."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@home_option
@server_option
def registry(model: str | None, history: bool, as_json: bool, home: Path | None, server: str | None) -> None:
    """List the models, or the versions of MODEL, newest first."""
    place = open_registry(home, server)
    if history and model is None:
        raise ReliveError("the history is that of one model; name it: relive registry MODEL --history")
    models = place.models() if model is None else [place.model(model)]
    if as_json:
        rows = words.history_told(models[0]) if history else [words.told(one) for one in models]
        for row in rows:
            click.echo(to_text(row))
        return
    if not models:
        click.echo("no models yet; promote a run with `relive promote RUN MODEL`", err=True)
        return
    table = _history(models[0]) if history else _versions(models[0]) if model else _models(models)
    make_console().print(table, markup=False)


def _table(*headings: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=heading in ("model", "version", "when", "run"), overflow="fold")
    return table


def _models(models: list[Model]) -> Any:
    table = _table("model", "versions", "aliases", "newest", "when")
    for model in models:
        aliases = " ".join(f"{alias}={number}" for alias, number in model.aliases.items())
        newest = model.versions[-1]
        table.add_row(model.name, str(len(model.versions)), aliases, f"run {short(newest.run)}", when(newest.time_us))
    return table


def _versions(model: Model) -> Any:
    table = _table("version", "aliases", "when", "run", "artifact", "data", "code", "metrics", "note")
    for one in reversed(model.versions):
        aliases = " ".join(model.aliases_of(one.version)) or ("retired" if one.is_retired else "")
        note = "; ".join([*([one.note] if one.note else []), *(f"missing: {text}" for text in one.missing)])
        code = str(one.code.get("version") or "none")[:12]
        table.add_row(
            str(one.version), aliases, when(one.time_us), short(one.run), _kept(one), one.data_version or "unknown",
            code, _metrics(one), note,
        )  # fmt: skip
    return table


def _metrics(one: ModelVersion) -> str:
    return " ".join(f"{name}={value(told['last'])}" for name, told in list(one.metrics.items())[:6])


def _kept(one: ModelVersion) -> str:
    if one.artifact is None:
        return "none"
    return f"{one.artifact['name']} {size(one.artifact['size_bytes'])} {one.artifact['digest'][:12]}"


def _history(model: Model) -> Any:
    table = _table("when", "what", "by")
    for event in words.history_told(model):
        if event["event"] == "version":
            note = f": {event['note']}" if event.get("note") else ""
            what = f"version {event['version']} from run {short(event['run'])}{note}"
        elif event["event"] == "alias":
            was = f", was {event['before']}" if event["before"] else ""
            what = f"{event['alias']} → {event['version']}{was}{' (rollback)' if event['how'] == 'rollback' else ''}"
        else:
            what = f"version {event['version']} retired"
        table.add_row(when(event["time_us"]), what, event["by"])
    return table


@click.command()
@click.argument("reference", metavar="MODEL@VERSION")
@click.argument("alias")
@home_option
@server_option
def alias(reference: str, alias: str, home: Path | None, server: str | None) -> None:
    """Let ALIAS point to a version: `relive alias my-model@candidate production`."""
    place = open_registry(home, server)
    found = place.find(reference)
    place.point(found.model, alias, found.version)
    click.echo(f"{found.model}@{alias} is version {found.version} now, run {short(found.run)}")


@click.command()
@click.argument("reference", metavar="MODEL@ALIAS")
@home_option
@server_option
def rollback(reference: str, home: Path | None, server: str | None) -> None:
    """Let an alias point to what it pointed to before; once more goes back further."""
    name, word = words.split_reference(reference)
    if word == words.NEWEST or word.isdecimal():
        raise ReliveError(f"{reference!r} names no alias; write for example {name}@production")
    found = open_registry(home, server).roll_back(name, word)
    click.echo(f"{name}@{word} is version {found.version} again, run {short(found.run)}")


@click.command()
@click.argument("reference", metavar="MODEL@VERSION")
@home_option
@server_option
def retire(reference: str, home: Path | None, server: str | None) -> None:
    """Give a version up: its run may be removed, and `relive gc` may free what only it held."""
    place = open_registry(home, server)
    found = place.find(reference)
    place.retire(found.model, found.version)
    click.echo(f"{found.reference} is retired; run {short(found.run)} is held by it no longer")


@click.command()
@click.argument("reference", metavar="MODEL[@VERSION]")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@home_option
@server_option
def download(reference: str, folder: Path, home: Path | None, server: str | None) -> None:
    """Write the artifact of a version to FOLDER, verified by its hash. VERSION is an alias or a number."""
    found, chunks = _wanted(reference, home, server)
    artifact = found.kept()
    target = artifact_files.confined(folder, artifact["name"])
    if target.exists() and not artifact_files.is_intact(artifact, target):
        raise ReliveError(f"{target} is there already, and is something else; name another folder")
    path = artifact_files.write_artifact(artifact, chunks, folder)
    click.echo(f"{found.reference}: {path} ({size(artifact['size_bytes'])}, {artifact['digest'][:12]})")


def _wanted(reference: str, home: Path | None, server: str | None) -> tuple[ModelVersion, Chunks]:
    """The version that is meant, and where its pieces are."""
    remote = chosen_server(home, server)
    if remote is None:
        place = open_home(home)
        return Registry(place).find(reference), Chunks(place.chunks)
    return RemoteRegistry(remote).find(reference), RemoteChunks(remote, Chunks(read_launch_context().home.chunks))
