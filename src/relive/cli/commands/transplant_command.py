"""`relive transplant`: carries statements from one version of a script to another, singly or in batches."""

from __future__ import annotations

import io
import json
import sys
import tokenize
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from relive.errors import TransplantError

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("old", type=_FILE, required=False)
@click.argument("new", type=_FILE, required=False)
@click.option(
    "--line",
    "lines",
    type=click.IntRange(min=1),
    multiple=True,
    help="A line of NEW whose statement to carry; may be repeated.",
)
@click.option("--via", type=_FILE, multiple=True, help="A version between the two; may be repeated, oldest first.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the patched text with positions, names, confidence and refusals."
)
@click.option("--batch", is_flag=True, help="Read cases as JSON lines from stdin, and write results as JSON lines.")
def transplant(
    old: Path | None, new: Path | None, lines: tuple[int, ...], via: tuple[Path, ...], as_json: bool, batch: bool
) -> None:
    """Print OLD with the statements at the given lines of NEW, each inserted at the matching position."""
    if batch:
        _run_batch()
        return
    if old is None or new is None or not lines:
        raise click.UsageError("give OLD, NEW and at least one --line, or --batch")
    old_text, encoding = _read_source(old)
    case = {
        "old": old_text,
        "new": _read_source(new)[0],
        "lines": list(lines),
        "chain": [_read_source(each)[0] for each in via],
    }
    result = _transplant_case(case)
    if as_json:
        click.echo(json.dumps(result))
    else:
        _write_source(result["patched"], encoding, old)
        for refusal in result["refusals"]:
            click.echo(f"line {refusal['line']} of {new} was omitted: {refusal['reason']}", err=True)
    if result["refusals"]:
        raise SystemExit(1)


def _read_source(path: Path) -> tuple[str, str]:
    """Returns the text of a script with its line endings, and its encoding."""
    content = path.read_bytes()
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(content).readline)[0].removesuffix("-sig")
        return content.decode(encoding), encoding
    except (SyntaxError, UnicodeDecodeError):
        return content.decode("latin-1"), "latin-1"  # decodes any bytes


def _write_source(text: str, encoding: str, path: Path) -> None:
    try:
        sys.stdout.buffer.write(text.encode(encoding))
    except UnicodeEncodeError as error:
        raise TransplantError(
            f"{error.object[error.start : error.end]!r} can't be written in the encoding of {path}, {encoding}; "
            "use --json to get the text itself"
        ) from error
    sys.stdout.buffer.flush()


def _run_batch() -> None:
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        case: Any = None
        try:
            case = json.loads(line)
            result = _transplant_case(case)
        except (ValueError, TypeError, KeyError, AttributeError) as error:  # an invalid case must not stop the others
            result = {"error": f"line {number} of stdin is not a valid case: {error!r}"}
        identity = {"id": case["id"]} if isinstance(case, dict) and "id" in case else {}
        click.echo(json.dumps({**identity, **result}))


def _transplant_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Solves one case: `old`, `new` and items of `chain` are a text or texts by path; a line is N or [path, N]."""
    from relive.transplant import transplant as carry

    old, new = case["old"], case["new"]
    path = case.get("path", "script.py")
    texts = [
        version if isinstance(version, dict) else {path: version} for version in (old, new, *case.get("chain", ()))
    ]
    positions = [each if isinstance(each, list) else [path, each] for each in case["lines"]]
    done = carry(texts[0], texts[1], [(str(file), int(line)) for file, line in positions], chain=texts[2:])
    landings = [{**asdict(landing), "confidence": landing.confidence} for landing in done.landings]
    patched = dict(done.files) if isinstance(old, dict) else done.files.get(path, old)
    return {
        "patched": patched,
        "landings": landings,
        "names": dict(done.names),
        "refusals": [asdict(refusal) for refusal in done.refusals],
        "added": {file: list(numbers) for file, numbers in done.added.items()},
    }
