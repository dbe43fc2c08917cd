"""`relive memo`: list, show, explain and remove stored calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relive.cli.display import format_short_duration, format_size, format_time, truncate
from relive.cli.targets import home_option, json_option, make_console, open_home, short_id, tell
from relive.cli.terminal_table import TerminalColumn, columns_of, print_table, table_options
from relive.errors import NotFound, ReliveError
from relive.memo import Sqlite, find_function, parse_condition, why_text
from relive.store.chunks import MemoRow, MemoTable
from relive.store.journal import from_json, safe_repr, to_json

_KEY_DIGITS = 12


@click.group()
def memo() -> None:
    """Remembered calls: list or show them, explain why one was computed, remove them."""


def _filter_options(command: Any) -> Any:
    for option in (
        click.option("--function", help="Only calls of this function (the last part of its name is enough)."),
        click.option("--where", help='Only calls that match this condition, for example "age > 30d and size > 10MB".'),
        home_option,
    ):
        command = option(command)
    return command


@memo.command()
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=30, show_default=True, help="How many calls to show; 0 shows all."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@table_options
@_filter_options
def ls(
    limit: int, as_json: bool, picked: str | None, wide: bool, function: str | None, where: str | None,
    home: Path | None,
) -> None:  # fmt: skip
    """List the remembered calls, newest first."""
    rows = _select_rows(_open_memo_table(home), (), function, where)
    shown = rows[:limit] if limit else rows
    if as_json:
        for row in shown:
            click.echo(to_json(_as_json(row)))
        return
    if shown:
        print_table(columns_of(_ROW_COLUMNS, map(_format_row, shown)), picked=picked, wide=wide)
    total = format_size(sum(row.size_bytes for row in rows))
    more = f", the newest {len(shown)} shown (-n 0 shows all)" if len(shown) < len(rows) else ""
    click.echo(f"{_count_calls(len(rows))} remembered, {total}{more}", err=True)


@memo.command()
@click.argument("key")
@click.option("--value", "with_value", is_flag=True, help="Also read the value; this runs code if it was pickled.")
@json_option
@home_option
def show(key: str, with_value: bool, as_json: bool, home: Path | None) -> None:
    """Show the remembered call KEY (a prefix is enough): arguments, cost, and the code it depends on."""
    memos = _open_memo_table(home)
    row = _find_row(memos, key)
    if as_json:
        value = {"value": safe_repr(Sqlite(open_home(home)).entry(row).value)} if with_value else {}
        click.echo(to_json(_as_json(row) | {"parts": from_json(memos.parts(row.code))} | value))
        return
    rows = [
        ("key", row.key), ("function", row.function), ("kind", row.kind), ("computed", format_time(row.created_us)),
        ("took", format_short_duration(row.took_s)), ("run", row.run or "none"), ("used", format_time(row.used_us)),
        ("size", format_size(row.size_bytes)), ("stored", "with pickle" if row.pickled else "without pickle"),
    ]  # fmt: skip
    rows += [(f"argument {name}", text) for name, (_, text) in from_json(row.arguments).items()]
    rows += [(f"code {name}", code_hash[:_KEY_DIGITS]) for name, code_hash in from_json(memos.parts(row.code)).items()]
    if with_value:
        rows.append(("value", safe_repr(Sqlite(open_home(home)).entry(row).value)))
    console = make_console()
    for name, text in rows:
        console.print(f"{name:<18} {text}", highlight=False, markup=False)


@memo.command()
@click.argument("call")
@json_option
@home_option
def why(call: str, as_json: bool, home: Path | None) -> None:
    """Explain why CALL, like "features('data.csv')", was computed; a name alone means the last computed call."""
    found = why_text(_open_memo_table(home), call)
    tell(str(found), as_json=as_json, is_hit=found.is_hit, reasons=list(found.reasons))


@memo.command()
@click.argument("keys", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@_filter_options
def rm(
    keys: tuple[str, ...], yes: bool, as_json: bool, function: str | None, where: str | None, home: Path | None
) -> None:  # fmt: skip
    """Remove the calls named by KEYS, or all that match the options. `relive gc` then frees the space."""
    if not keys and not function and not where:
        raise ReliveError(
            "this would remove every call; name keys, --function or --where, or write --where 'age >= 0s'"
        )
    memos = _open_memo_table(home)
    rows = _select_rows(memos, keys, function, where)
    if rows and not yes:
        total = format_size(sum(row.size_bytes for row in rows))
        click.confirm(f"Remove {_count_calls(len(rows))}, {total}?", abort=True)
    count = memos.remove(row.key for row in rows)
    tell(f"{_count_calls(count)} removed; `relive gc` frees the space", as_json=as_json, removed=count)


@memo.command()
@json_option
@home_option
def trust(as_json: bool, home: Path | None) -> None:
    """Trust the pickled results of a home that was copied here. Reading them runs code, so trust its origin first."""
    count = _open_memo_table(home).trust()
    tell(f"{count} pickled results are now trusted", as_json=as_json, trusted=count)


def _count_calls(count: int) -> str:
    return f"{count} call" if count == 1 else f"{count} calls"


def _open_memo_table(home: Path | None) -> MemoTable:
    place = open_home(home)
    if not place.memo.exists():
        raise NotFound(f"nothing is remembered in {place.path}; decorate a function with @relive.memo and call it")
    return MemoTable(place.memo)


def _select_rows(memos: MemoTable, keys: tuple[str, ...], function: str | None, where: str | None) -> list[MemoRow]:
    if keys:
        rows = [_find_row(memos, key) for key in keys]
    elif function is not None:
        rows = memos.rows("function = ?", (find_function(memos, function),))
    else:
        rows = memos.rows()
    condition = parse_condition(where) if where is not None else None
    return [row for row in rows if condition is None or condition(row)]


def _find_row(memos: MemoTable, key: str) -> MemoRow:
    if not key or not all(c in "0123456789abcdef" for c in key.lower()):
        raise NotFound(f"{key!r} is not a key; `relive memo ls` lists the keys")
    found = memos.rows("key glob ?", (f"{key.lower()}*",), limit=2)
    if not found:
        raise NotFound(f"nothing is remembered under {key}; `relive memo ls` lists the keys")
    if len(found) > 1:
        raise NotFound(f"{key} matches several keys; give more digits")
    return found[0]


_ROW_COLUMNS = (
    TerminalColumn("key", rank=0),
    TerminalColumn("function", is_cut=True, stays=True),
    TerminalColumn("arguments", is_cut=True, stays=True),
    TerminalColumn("took", rank=2, is_number=True),
    TerminalColumn("size", rank=3, is_number=True),
    TerminalColumn("when", rank=3),
    TerminalColumn("run", rank=3),
)


def _format_row(row: MemoRow) -> list[str]:
    mark = " (exception)" if row.kind == "exception" else ""
    return [
        row.key[:_KEY_DIGITS], row.function + mark, truncate(_format_arguments(row)),
        format_short_duration(row.took_s), format_size(row.size_bytes), format_time(row.created_us), short_id(row.run),
    ]  # fmt: skip


def _format_arguments(row: MemoRow) -> str:
    return " ".join(f"{name}={text}" for name, (_, text) in from_json(row.arguments).items())


def _as_json(row: MemoRow) -> dict[str, Any]:
    arguments = {name: text for name, (_, text) in from_json(row.arguments).items()}
    return {
        "key": row.key, "function": row.function, "kind": row.kind, "arguments": arguments, "code": row.code,
        "bytes": row.size_bytes, "pickled": bool(row.pickled), "run": row.run or None, "created_us": row.created_us,
        "used_us": row.used_us, "took_s": row.took_s,
    }  # fmt: skip
