"""The answer of `relive diverge` as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from relive.cli.display import format_value
from relive.cli.targets import short_id
from relive.hindsight.divergence import Course, Divergence, Parting, RankDivergence, RunDifferences

_SHOWN = 5
_WIDTH = 14


# --- two runs ---------------------------------------------------------------------------------------------------------


def run_lines(found: Divergence) -> Iterator[str]:
    names = " and ".join(short_id(record.run) for record in (found.one, found.other))
    course = found.course
    of_rank = f" on rank {found.rank}" if len(found.courses) > 1 else ""
    if course.parted is not None:
        yield f"runs {names} parted{of_rank} {_at(course.parted.where)}"
        yield from _parting_lines(course.parted)
        if course.numbers is not None:
            yield _line("first numbers", f"{_what(course.numbers)} {_at(course.numbers.where)}")
    elif found.verdict == "identical":
        yield f"runs {names} are identical, as far as they are recorded and were compared"
    else:
        yield f"runs {names} have nothing that could be compared"
    yield from _labelled("before", _before_lines(found.before))
    if course.parted is not None and found.before.is_none:
        yield _line("likely", _hint(course.parted))
    yield from _labelled("arg in state", _setting_lines(course))
    yield from _labelled("compared", [_compared(course)])
    yield from _labelled("not compared", _left_out_lines(found))
    if course.aside:
        yield _line("left aside", f"{_listed([leaf.path for leaf in course.aside])}: no sign of other numbers")
    if len(found.courses) > 1:
        yield from _labelled("ranks", [_rank_state(rank, course) for rank, course in found.courses.items()])
    yield from _labelled("note", list(dict.fromkeys([*found.notes, *course.notes])))


def _parting_lines(parted: Parting) -> Iterator[str]:
    yield _line("first", _what(parted))
    if parted.leaves and parted.leaves_where != parted.where:
        yield _line("objects", f"{_listed([leaf.path for leaf in parted.leaves])} {_at(parted.leaves_where)}")
    elif len(parted.leaves) > 1:
        yield _line("also", _listed([leaf.path for leaf in parted.leaves if leaf.path != parted.leaf]))
    if not parted.last_agreed:
        yield _line("last agreed", "nothing before it was recorded")
    elif parted.between:
        yield _line(
            "last agreed",
            f"{parted.last_agreed}; nothing is known of {parted.between} iterations between, --replay looks at them",
        )
    else:
        yield _line("last agreed", parted.last_agreed)


def _hint(parted: Parting) -> str:
    """What to look for if nothing that was recorded differs."""
    generators = [leaf.path for leaf in parted.leaves if leaf.kind == "generator"]
    if generators:
        return f"{', '.join(generators)} was seeded otherwise, or not at all"
    return "randomness that is not seeded, kernels that are not deterministic, the clock, or a file that was not seen"


def _what(parted: Parting) -> str:
    sides = "" if parted.one is None and parted.other is None else f": {_value(parted.one)} / {_value(parted.other)}"
    if parted.what == "value":
        return f"{parted.leaf}, as it was logged{sides}"
    if parted.what == "iterations":
        return f"the number of iterations of {parted.leaf}{sides}"
    return f"{parted.leaf}{sides}"


def _value(value: Any) -> str:
    return repr(value) if isinstance(value, float) else format_value(value)  # all digits: they may differ in the last


def _before_lines(found: RunDifferences) -> list[str]:
    lines = [f"arg {name}: {_value(one)} / {_value(other)}" for name, (one, other) in found.args.items()]
    for name in ("code", "data", "environment", "machine", "launch"):
        changes = getattr(found, name)
        if changes:
            lines.append(f"{name}: {_listed(changes)}")
    same = [name for name in ("args", "code", "data", "environment", "machine", "launch") if not getattr(found, name)]
    unknown = {text.partition(":")[0] for text in found.unknown}
    same = [name for name in same if name not in unknown and not (name == "environment" and "packages" in unknown)]
    return lines + ([f"the same: {', '.join(same)}"] if same else []) + found.unknown


def _setting_lines(course: Course) -> list[str]:
    return [_listed([f"{leaf.path} {_value(leaf.one)} / {_value(leaf.other)}" for leaf in course.settings])] * bool(
        course.settings
    )


def _compared(course: Course) -> str:
    found = course.compared
    parts = []
    if found.states:
        of_all = f" of {found.states_there}" if found.states_there > found.states else ""
        parts.append(f"{found.states}{of_all} states of up to {found.objects} objects")
    if found.digests:
        parts.append(f"{found.digests} digests of {found.tensors} tensors")
    if found.values:
        parts.append(f"{found.values} logged values")
    return ", ".join(parts) or "nothing"


def _left_out_lines(found: Divergence) -> list[str]:
    course = found.course
    lines = [f"{course.compared.unknown} objects that could not be looked at"] * bool(course.compared.unknown)
    for names, record in ((course.only_one, found.one), (course.only_other, found.other)):
        if names:
            lines.append(f"only in {short_id(record.run)}: {_listed(names)}")
    return lines


def _rank_state(rank: int, course: Course) -> str:
    return f"{rank}: parted {_at(course.parted.where)}" if course.parted else f"{rank}: {_compared(course)}, identical"


# --- ranks of one run -------------------------------------------------------------------------------------------------


def rank_lines(found: RankDivergence) -> Iterator[str]:
    run = short_id(found.record.run)
    parted = found.parted
    if parted is None:
        state = "have nothing that could be compared" if found.is_nothing else "have the same parameters"
        yield f"the {len(found.ranks)} ranks of {run} {state}, as far as they are recorded"
    else:
        if parted.astray:
            who = f"rank {', '.join(map(str, parted.astray))} went astray"
        else:
            groups = " and ".join(f"rank {', '.join(map(str, group))}" for group in parted.groups)
            who = f"{groups} parted, and neither side has a majority"
        yield f"run {run}: {who} {_at(parted.where)}"
        yield _line("first", parted.leaf)
        if len(parted.leaves) > 1:
            yield _line("also", _listed(parted.leaves[1:]))
        gap = f"; nothing is known of {parted.between} iterations between" if parted.between else ""
        yield _line("last agreed", f"{parted.last_agreed}{gap}" if parted.last_agreed else "no moment before it")
    for rank, before in found.before.items():
        yield _line("before", f"rank {rank}: {_listed([*before.machine, *before.launch])}")
    yield _line(
        "compared", f"{found.parameters} parameters at {found.moments} moments; logged values are each rank's own"
    )
    yield from _labelled("note", found.notes)


# --- lines ------------------------------------------------------------------------------------------------------------


def _at(where: str) -> str:
    return f"at {where}" if not where.startswith("outside") else where


def _listed(texts: Iterable[Any]) -> str:
    names = list(texts)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(str, names[:_SHOWN])) + more


def _labelled(label: str, texts: Sequence[str]) -> Iterator[str]:
    for at, text in enumerate(texts):
        yield _line(label if not at else "", text)


def _line(label: str, text: str) -> str:
    return f"  {label:<{_WIDTH}}{text}"
