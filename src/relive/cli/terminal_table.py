"""Lays out tables for a terminal: what is equal in all rows is said once, and what does not fit is left out by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

GAP = "  "
_ENDLESS = 1 << 30
_LEAST = 12  # characters that are left of a column that is cut
_CommandT = TypeVar("_CommandT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class TerminalColumn:
    """A column of texts. Columns of a higher `rank` give way first; those of rank 0 are always shown, and whole."""

    title: str
    cells: Sequence[str] = ()
    rank: int = 1
    is_number: bool = False
    is_cut: bool = False  # whether a long text may be cut, rather than the column be left out
    stays: bool = False  # whether it is shown although all its cells are equal

    @property
    def width(self) -> int:
        return max(map(text_width, [self.title, *self.cells]))


@dataclass(frozen=True, slots=True)
class TerminalLayout:
    """The columns that are shown, what is equal in all rows, and the titles of those for which there is no room."""

    columns: Sequence[TerminalColumn]
    common: Sequence[tuple[str, str]] = ()
    left_out: Sequence[str] = ()

    def lines(self) -> list[str]:
        """Returns the heading and the rows, each column as wide as its widest cell."""
        parts = [_pad([column.title, *column.cells], is_number=column.is_number) for column in self.columns]
        return [GAP.join(row).rstrip() for row in zip(*parts, strict=True)]


def arrange(columns: Sequence[TerminalColumn], width: int | None) -> TerminalLayout:
    """Decides what a table of some width shows; without a width, everything."""
    clean = [replace(one, title=printable(one.title), cells=[*map(printable, one.cells)]) for one in columns]
    if width is None:
        return TerminalLayout(clean)
    common = [one for one in clean if _is_common(one)]
    shown = [one for one in clean if one not in common]
    left_out: list[str] = []
    while (excess := _total(shown) - width) > 0:
        cut = max((one for one in shown if one.is_cut and one.width > _LEAST), key=lambda one: one.width, default=None)
        gives_way = max((one for one in shown if one.rank), key=lambda one: (one.rank, shown.index(one)), default=None)
        if cut is not None and (excess <= cut.width - _LEAST or gives_way is None or cut.rank >= gives_way.rank):
            shown[shown.index(cut)] = _cut_column(cut, max(_LEAST, cut.width - excess))
        elif gives_way is not None:
            shown.remove(gives_way)
            left_out.insert(0, gives_way.title)
        else:
            break  # only the columns that are always shown are left
    told = [(one.title, one.cells[0]) for one in common if one.cells[0]]
    return TerminalLayout(shown, told, left_out)


def columns_of(headings: Sequence[TerminalColumn], rows: Iterable[Sequence[str]]) -> list[TerminalColumn]:
    """Returns columns with the cells of some rows; the headings have none yet."""
    cells = list(zip(*rows, strict=True)) or [()] * len(headings)
    return [replace(heading, cells=each) for heading, each in zip(headings, cells, strict=True)]


def pick(columns: Sequence[TerminalColumn], picked: str | None) -> list[TerminalColumn]:
    """Returns the columns that are named in a comma-separated list, in its order; None means all of them."""
    if picked is None:
        return list(columns)
    by_title = {column.title: column for column in columns}
    names = [name.strip() for name in picked.split(",") if name.strip()]
    if unknown := [name for name in names if name not in by_title]:
        known = ", ".join(title for title in by_title if title)
        raise click.UsageError(f"no column {unknown[0]!r}; there are {known}")
    return [replace(by_title[name], rank=0, stays=True) for name in names]


def text_width(text: str) -> int:
    """Returns how many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Returns a text that takes at most so many cells, with … where it was cut: between words if there are several."""
    if text_width(text) <= width:
        return text
    while text_width(text) >= width:
        text = text[: len(text) - max(1, (text_width(text) - width) // 2)]
    words = text.rpartition(" ")[0]
    return f"{words} …" if len(words) * 3 > width else f"{text}…"


def printable(text: str) -> str:
    """Returns a text in one line, with control characters written out: names from elsewhere don't steer a terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " if one in "\n\t" else repr(one)[1:-1] for one in text)


# --- on the terminal --------------------------------------------------------------------------------------------------


def table_options(command: _CommandT) -> _CommandT:
    """Adds `--columns` and `--wide`."""
    wide = click.option("--wide", is_flag=True, help="Show all columns, however wide the table becomes.")
    columns = click.option("--columns", "picked", metavar="A,B", help="Show these columns only, in this order.")
    return columns(wide(command))


def terminal_width() -> int | None:
    """The width of the terminal, or that of COLUMNS; None where the output goes to a file or another program."""
    given = os.environ.get("COLUMNS", "")
    if sys.stdout.isatty():
        return _terminal_size().columns
    return int(given) if given.isdecimal() and int(given) > 0 else None


def _terminal_size() -> os.terminal_size:
    import shutil  # takes long to load, and most commands write to a file or another program

    return shutil.get_terminal_size()


def print_table(
    columns: Sequence[TerminalColumn], *, picked: str | None = None, wide: bool = False, styles: Sequence[str] = (),
    common: Iterable[tuple[str, str]] = (),
) -> None:  # fmt: skip
    """Prints a table, a screen at a time if it is longer than one.

    `styles` are the colours of the rows, and `common` is what they share besides columns, said above them.
    """
    width = None if wide else terminal_width()
    layout = arrange(pick(columns, picked), width)
    lines = layout.lines()
    shared = [f"{name} {text}".strip() for name, text in [*(common if width is not None else ()), *layout.common]]
    above = [click.style(cut("all: " + ", ".join(shared), width or len(", ".join(shared)) + 9), dim=True)] * bool(
        shared
    )
    heading = click.style(lines[0], bold=True)
    body = [click.style(line, fg=style) if style else line for line, style in _with_styles(lines[1:], styles)]
    _show([*above, heading, *body])
    if layout.left_out:
        context = click.get_current_context(silent=True)
        has_options = context is None or "wide" in context.params
        remedy = "--wide shows all, --columns A,B picks" if has_options else "a wider terminal, or a file, shows all"
        click.echo(f"not shown: {', '.join(layout.left_out)}; {remedy}", err=True)


def _show(lines: Sequence[str]) -> None:
    is_screen = sys.stdout.isatty() and sys.stdin.isatty()
    if is_screen and len(lines) > _terminal_size().lines - 2:
        os.environ.setdefault("LESS", "FRX")
        click.echo_via_pager("\n".join(lines) + "\n")
    else:
        click.echo("\n".join(lines))


def _with_styles(lines: Sequence[str], styles: Sequence[str]) -> Iterable[tuple[str, str]]:
    return zip(lines, styles or [""] * len(lines), strict=True)


def _is_common(column: TerminalColumn) -> bool:
    """Whether a column says the same in all rows, or nothing."""
    different = {*column.cells}
    is_equal = len(different) == 1 and len(column.cells) > 1
    return bool(column.rank) and not column.stays and (is_equal or different == {""})


def _total(columns: Sequence[TerminalColumn]) -> int:
    return sum(one.width for one in columns) + len(GAP) * max(0, len(columns) - 1)


def _cut_column(column: TerminalColumn, width: int) -> TerminalColumn:
    return replace(column, cells=[cut(cell, width) for cell in column.cells], is_cut=width > _LEAST)


def _pad(texts: Sequence[str], *, is_number: bool) -> list[str]:
    width = max(map(text_width, texts))
    rooms = [" " * (width - text_width(text)) for text in texts]
    return [room + text if is_number else text + room for text, room in zip(texts, rooms, strict=True)]
