"""Formats values, times, durations and sizes for a terminal."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from relive.store.catalog import Summary
from relive.store.journal import from_json

_UNITS = ("B", "kB", "MB", "GB", "TB")
_MAX_CHARS = 60


def format_time(time_us: int) -> str:
    """Formats a timestamp as local time, to the second."""
    moment = datetime.datetime.fromtimestamp(time_us / 1e6, tz=datetime.UTC).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def format_times(times_us: Sequence[int], now: datetime.datetime | None = None) -> list[str]:
    """Formats timestamps briefly: the time if all are of today, else day and minute, and the year if it is another."""
    moments = [datetime.datetime.fromtimestamp(one / 1e6, tz=datetime.UTC).astimezone() for one in times_us]
    today = (now or datetime.datetime.now(tz=datetime.UTC)).astimezone()
    if all(one.date() == today.date() for one in moments):
        return [one.strftime("%H:%M:%S") for one in moments]
    is_this_year = all(one.year == today.year for one in moments)
    return [one.strftime("%m-%d %H:%M" if is_this_year else "%Y-%m-%d %H:%M") for one in moments]


def format_duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def format_short_duration(seconds: float) -> str:
    """Formats a duration, with milliseconds below one second."""
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else format_duration(seconds)


def format_size(count_bytes: float) -> str:
    for unit in _UNITS:
        if count_bytes < 1000 or unit == _UNITS[-1]:
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1000
    return ""


def differing_args(runs: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns the args of each run that are not the same in all of several runs, and those that are."""
    if len(runs) < 2:
        return [dict(args) for args in runs], {}
    first, *others = runs
    equal = {name: given for name, given in first.items() if all(name in one and one[name] == given for one in others)}
    return [{name: given for name, given in args.items() if name not in equal} for args in runs], equal


def format_args(args: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={format_value(given)}" for name, given in args.items())


def format_value(form: Any, digits: int = 6) -> str:
    """Formats a value in its JSON form."""
    if isinstance(form, float):
        return f"{form:.{digits}g}"
    if isinstance(form, dict) and len(form) == 1:
        tag, inner = next(iter(form.items()))
        if tag == "$float" or tag == "$path" or tag == "$datetime":
            return str(inner)
        if tag == "$int":
            return str(int(inner, 16))
        if tag == "$np":
            return format_value(inner[1])
        if tag in ("$array", "$image"):
            return f"{tag[1:]}{inner['shape']}"
        if tag == "$repr" or tag == "$text":
            return truncate(str(inner.get("text") or inner.get("head")))
        if tag == "$secret":
            return "<redacted>"
        if tag == "$tuple":
            return "(" + ", ".join(format_value(item) for item in inner) + ")"
    if isinstance(form, list):
        return truncate("[" + ", ".join(format_value(item) for item in form) + "]")
    return truncate(str(form))


def truncate(text: str) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"


def format_last_value(summary: Summary) -> str:
    if summary.last_text is not None:
        return format_value(from_json(summary.last_text))
    return format_value(summary.last)
