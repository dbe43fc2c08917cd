"""Small training programs, made up at random: loop shapes, kinds of state, ways out of loops, places of statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import program_parts as words
from hypothesis import strategies as st

from tests.laws.awkward_parts import PLACES as PART_PLACES
from tests.laws.awkward_parts import Part, as_part
from tests.laws.awkward_source import Awkward, read_programs

Context = tuple[tuple[str, int], ...]  # loops with the values of their columns, outermost first

# What the main loop, and nested ones, go over; and the items that an integer column then has, by their number.
ITEMS: list[tuple[str, Callable[[int], list[int]] | None]] = [
    ("range({n})", lambda n: list(range(n))),
    ("range({n})", lambda n: list(range(n))),
    ("list(range(10, 10 + {n}))", lambda n: list(range(10, 10 + n))),
    ("(i * i for i in range({n}))", lambda n: [i * i for i in range(n)]),
    ("'abcdefgh'[:{n}]", None),
    ("Loader(range({n}))", lambda n: list(range(n))),
    ("zip(range({n}), 'abcdefgh')", None),
    ("enumerate(list('abcdefgh')[:{n}])", None),
    ("range(20, 20 + 2 * {n}, 2)", lambda n: list(range(20, 20 + 2 * n, 2))),
    ("range(0)", lambda n: []),
    ("itertools.takewhile(lambda i: i < {n}, itertools.count())", lambda n: list(range(n))),
]
LOOP = "relive.loop('{name}', {items})"
WRAPPED = [LOOP, f"enumerate({LOOP})", f"bar({LOOP})", f"zip({LOOP}, itertools.count())"]
INNER = [*WRAPPED, f"list({LOOP})", f"bar(enumerate({LOOP}))"]
LEAVING = [
    "", "", "", "if count > {k}:\n    break", "if count % 5 == 4:\n    continue",
    "try:\n    if count > {k}:\n        break\nfinally:\n    last += 0.5",
    "if count > {k}:\n    raise Early(last)",
]  # fmt: skip
RETURNING = "if count > {k}:\n    return last"
ENDING = "if count > {k}:\n    raise Boom(last)"
# How a run ends before its time; a replay is not to die of it, so that only the environment of the run says so.
DYING = [
    "if count > {k} and __import__('os').environ.get('_DIES'):\n    " + how
    for how in (
        "__import__('os').kill(__import__('os').getpid(), 9)", "__import__('os')._exit(3)", "raise SystemExit(4)",
        "raise KeyboardInterrupt",
    )
]  # fmt: skip
ELSE = "else:\n    last += 100.0\n"
BLOCKS = ("before", "inside", "innermost", "after", "between", "suffix")
PLACES = (*BLOCKS, *BLOCKS, "prefix", "function", "method", "callback", "decorated", "generator", "library", "listed")
CALLED = ("function", "method", "callback", "decorated", "library", "listed")
CALLS = {
    "function": "report()", "method": "asking.ask()", "callback": "apply(report_back)", "decorated": "report_twice()",
    "library": "last += lib.watch(0.5)", "listed": "kept = [note(one) for one in (1.0, 2.0)]",
}  # fmt: skip
SHAPES = ("top", "top", "main", "main", "locals", "trainer", "folds", "two", "helper", "while")


@dataclass(frozen=True)
class Program:
    """A program without the statement, and with it: files by their names. `where` narrows the question."""

    plain: Mapping[str, str]
    asked: Mapping[str, str]
    how: tuple[str, ...] = ()  # it is started: what comes before the script's name
    epochs: tuple[int, ...] | None = None  # that are asked for
    part: Part | None = None  # the awkward one of it
    env: Mapping[str, str] = field(default_factory=dict)  # of its runs, but not of its replay

    @property
    def where(self) -> str | None:
        return None if self.epochs is None else f"epoch in ({', '.join(map(str, self.epochs))})"

    def wants(self, context: Context) -> bool:
        return self.epochs is None or dict(context).get("epoch") in self.epochs

    @property
    def dies(self) -> bool:
        return "_DIES" in self.env

    @property
    def outside(self) -> Mapping[str, str]:
        """The files of a library."""
        return self.part.outside if self.part is not None else {}

    def __repr__(self) -> str:
        part = self.part and self.part.name
        told = "\n".join(f"# --- {name}\n{text}" for name, text in self.asked.items() if name.endswith(".py"))
        return f"Program(how={self.how}, where={self.where}, part={part}, env={self.env})\n{told}"


def _indent(text: str, depth: int) -> str:
    return "".join("    " * depth + line + "\n" for line in text.splitlines())


def _kind(one: Awkward) -> str:
    """Of the programs that it can be a part of."""
    libraries = ("numpy", "pandas", "sklearn")
    return "torch" if one.needs_torch else "numpy" if any(name in one.source for name in libraries) else "plain"


# Left out is what would change the rest of a program rather than itself.
AWKWARD = {kind: [one for one in read_programs() if one.pieces and _kind(one) == kind and one.name != "default_dtype"]
           for kind in ("plain", "numpy", "torch")}  # fmt: skip


@st.composite
def parts_of(draw: st.DrawFn, kind: str) -> Part | None:
    """Something awkward in every other program."""
    if not draw(st.booleans()):
        return None
    return as_part(draw(st.sampled_from(AWKWARD[kind])), draw(st.sampled_from(PART_PLACES)))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """One program: a main loop or two, perhaps nested loops, perhaps in functions or a method."""
    kind = draw(st.sampled_from(["plain"] * 6 + ["numpy"] * 3 + ["torch"]))
    hands_free = draw(st.sampled_from([False, False, True]))
    shape = draw(st.sampled_from(SHAPES))
    place = draw(st.sampled_from(PLACES))
    more = {"numpy": words.NUMPY_BODIES, "torch": words.TORCH_BODIES * 3}.get(kind, [])
    some = st.lists(st.sampled_from([*words.BODIES, *more]), min_size=1, max_size=4)
    is_function = shape in ("locals", "trainer", "helper")
    ways = [*LEAVING, ENDING, *([RETURNING] if is_function else [])]
    part = draw(parts_of(kind))
    env = dict(part.env) if part is not None else {}
    items, epochs = draw(st.sampled_from(ITEMS))
    length = draw(st.sampled_from([4, 3, 5, 6, 1]))
    seldom = st.sampled_from([False, False, False, True])
    parts: dict[str, Any] = {
        "seed": draw(st.integers(0, 99)), "is_seeded": True, "kind": kind, "shape": shape, "hands_free": hands_free,
        **{name: draw(some) for name in BLOCKS},
        "nested": draw(st.sampled_from([0, 1, 1, 1, 2])), "deep": draw(seldom) or place == "innermost",
        "items": items.format(n=length), "length": length,
        "inner_items": draw(st.sampled_from(ITEMS))[0].format(n=draw(st.integers(1, 4))),
        "main": draw(st.sampled_from([WRAPPED[0], WRAPPED[0], *WRAPPED])),
        "inner": draw(st.sampled_from(INNER)),
        "main_leaves": draw(st.sampled_from(ways)).format(k=draw(st.integers(1, 12))),
        "inner_leaves": draw(st.sampled_from(ways)).format(k=draw(st.integers(1, 12))),
        "main_else": draw(seldom), "inner_else": draw(seldom), "plain_inner": draw(seldom),
        "skipblock": draw(seldom) and not hands_free, "same_name": draw(seldom),
        "logs": draw(st.sets(st.sampled_from(["before", "inside", "after", "suffix"]))),
        "every": draw(st.sampled_from(["every=1"] * 5 + ["every=2", "every=3", "overhead=0.5"])),
        "calls": draw(st.sets(st.sampled_from(BLOCKS), min_size=1, max_size=3)),
        "optimizer": draw(st.sampled_from(words.OPTIMIZERS)), "scheduler": draw(st.sampled_from(words.SCHEDULERS)),
    }  # fmt: skip
    if draw(st.sampled_from([False] * 7 + [True])):
        moved = draw(st.sampled_from(list(words.ITERATORS)))
        parts[draw(st.sampled_from(BLOCKS))].append(moved)
        parts["iterator"] = words.ITERATORS[moved]
    if draw(st.booleans()):
        parts["before"] = ["count += 1", *parts["before"]]
    if draw(st.sampled_from([False] * 9 + [True])):
        env["_DIES"] = "1"
        parts[draw(st.sampled_from(["main_leaves", "inner_leaves"]))] = draw(st.sampled_from(DYING)).format(
            k=draw(st.integers(1, 12))
        )
    if draw(st.sampled_from([False] * 7 + [True])):
        env["AWKWARD_START"], parts["is_seeded"] = "5", False
    probes = {"numpy": words.NUMPY_PROBES * 3, "torch": words.TORCH_PROBES * 3}.get(kind, [])
    probe = draw(st.sampled_from([*words.PROBES, *probes]))
    if part is not None:
        parts["part"] = part
        for where in draw(st.sets(st.sampled_from(["before", "inside", "after", "between"]), min_size=1, max_size=2)):
            parts[where].append(part.turn)
        parts["before"].append(part.turn)
        if draw(st.sampled_from([True, True, True, False])):
            probe = f"relive.log('probe', {part.told})"
    narrowed = None
    if epochs is not None and epochs(length) and shape != "while" and draw(seldom):
        known = st.sampled_from(epochs(length))
        narrowed = tuple(sorted(draw(st.sets(known, min_size=1, max_size=3))))
    plain, asked = (_files(parts, place if with_it else "", probe) for with_it in (False, True))
    how = ("-m", "relive", "run") if hands_free else ()
    return Program(plain, asked, how, narrowed, part, env)


def _files(parts: dict[str, Any], place: str, probe: str) -> dict[str, str]:
    library = words.LIB.format(asked=words.LIB_PROBE if place == "library" else "pass")
    text = _source(parts, place, probe)
    files = {
        "train.py": _untold(text) if parts["hands_free"] else text,
        "lib.py": library,
        "numbers.txt": words.NUMBERS,
    }
    return {**files, **parts["part"].files} if "part" in parts else files


def _untold(text: str) -> str:
    """The same for a script that knows nothing of relive but `log`: its loops are plain ones."""
    text = re.sub(r"with relive\.checkpointing\(.*\):", "with contextlib.nullcontext():", text)
    while found := re.search(r"relive\.loop\('\w+', ", text):
        end, depth = found.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        text = text[: found.start()] + text[found.end() : end - 1] + text[end:]
    return text


def _source(parts: dict[str, Any], place: str, probe: str) -> str:
    def block(where: str) -> str:
        lines = list(parts.get(where, []))
        if where in parts["logs"]:
            lines.append(f"relive.log('{where}', probe(net, last))")
        if place == where:
            lines.append(probe)
        if where in parts["calls"]:
            lines += [CALLS[one] for one in CALLED]
        return "\n".join(lines)

    text = _head(parts)
    text += _functions(place, probe)
    if place == "prefix":
        text += probe + "\n"
    if parts["skipblock"]:
        text += _skipblock(parts)
    text += _SHAPED[parts["shape"]](parts, _main_loop(parts, block), block)
    return text + (block("suffix") or "pass") + "\nrelive.log('final', probe(net, last, count))\n"


def _head(parts: dict[str, Any]) -> str:
    kind = parts["kind"]
    imports = {"numpy": "import numpy as np\n", "torch": "import torch\n"}.get(kind, "")
    more = {"numpy": words.VECTORS, "torch": words.TORCH_HEAD.format(**parts)}.get(kind, "")
    seeding = f"random.seed({parts['seed']})" if parts["is_seeded"] else ""
    part = parts["part"].head if "part" in parts else ""
    head = words.HEAD.format(seeding=seeding, imports=imports, more=more)
    return f"{head}{parts.get('iterator', '')}\n{part}\n"


def _functions(place: str, probe: str) -> str:
    """Where else the statement may stand."""

    def body(of: str, depth: int = 1) -> str:
        return _indent(probe.replace("\nlast_probe = last", "") if place == of else "pass", depth)

    return (
        f"\ndef report():\n{body('function')}"
        f"\nclass Asking:\n    def ask(self):\n{body('method', 2)}asking = Asking()\n"
        f"\ndef report_back():\n{body('callback')}\n@twice\ndef report_twice():\n{body('decorated')}"
        f"\ndef note(one):\n{body('listed')}    return one\n"
        f"\ndef bar(items):\n    for item in items:\n{body('generator', 2)}        yield item\n"
    )


def _skipblock(parts: dict[str, Any]) -> str:
    body = "\n".join(parts["between"])
    return f"pre = relive.skipblock('warmup')\nif pre.step_into():\n{_indent(body, 1)}pre.end(net=net)\n"


def _main_loop(parts: dict[str, Any], block: Any) -> str:
    body = f"{block('before')}\n{_nested(parts, block)}{block('after')}\n"
    if parts["main_leaves"]:
        body += parts["main_leaves"] + "\n"
    named = "model=model, opt=opt, net=net" if parts["kind"] == "torch" else "net=net"
    text = f"with relive.checkpointing({named}, {parts['every']}):\n"
    if parts["shape"] == "while":
        text += _while(parts, body)
    else:
        items = parts["main"].format(name="epoch", items=parts["items"])
        text += f"    for epoch in {items}:\n" + _indent(body, 2)
        text += _indent(ELSE, 1) if parts["main_else"] else ""
    return _caught(text, parts["main_leaves"])


def _while(parts: dict[str, Any], body: str) -> str:
    """A loop that ends by a condition: hands-free a `while`, else one without an end that is left by `break`."""
    if parts["hands_free"]:
        return "    epoch = -1\n" + f"    while epoch < {parts['length']}:\n        epoch += 1\n" + _indent(body, 2)
    until = f"        if epoch >= {parts['length']}:\n            break\n"
    return "    for epoch in relive.loop('epoch', itertools.count()):\n" + until + _indent(body, 2)


def _nested(parts: dict[str, Any], block: Any) -> str:
    text = ""
    for at in range(parts["nested"]):
        name = "step" if not at or parts["same_name"] else "second"
        items = parts["inner_items"] if parts["plain_inner"] and not at else None
        items = items or parts["inner"].format(name=name, items=parts["inner_items"])
        body = (block("inside") if not at else "net.w[1] += 0.01\nlast = net.norm()") + "\n"
        if parts["deep"] and not at:
            body += "for micro in relive.loop('micro', range(2)):\n" + _indent(block("innermost"), 1)
        if parts["inner_leaves"]:
            body += parts["inner_leaves"] + "\n"
        loop = f"for item in {items}:\n" + _indent(body, 1) + (ELSE if parts["inner_else"] else "")
        text += _caught(loop, parts["inner_leaves"])
    return text


def _caught(loop: str, leaves: str) -> str:
    """What is raised to leave a loop is caught right behind it."""
    return f"try:\n{_indent(loop, 1)}except Early:\n    last += 3.0\n" if "Early" in leaves else loop


# --- where the main loop stands ---------------------------------------------------------------------------------------

_SCALARS = "count, best, last, big, words, third, snapshot, point, meter, other, table, best_net, history, alias"
_OWN = {"numpy": ", vec, best_vec", "torch": ", opt, ema, best_state, lowest, loss"}
_SHARED = {"numpy": ", view", "torch": ", model, sched"}


def _globals(parts: dict[str, Any]) -> str:
    return f"{_SCALARS}, calls, last_probe, k, error, kept, epoch" + _OWN.get(parts["kind"], "")


def _top(parts: dict[str, Any], loop: str, block: Any) -> str:
    return loop


def _main(parts: dict[str, Any], loop: str, block: Any) -> str:
    return f"\ndef main():\n    global {_globals(parts)}\n" + _indent(loop, 1) + "main()\n"


def _locals(parts: dict[str, Any], loop: str, block: Any) -> str:
    """Everything that changes is a local variable of a function."""
    taken = f"{_SCALARS}, recent, seen, counts" + _OWN.get(parts["kind"], "")
    taken += _SHARED.get(parts["kind"], "")
    return (
        f"\ndef main({taken}):\n{_indent(loop, 1)}"
        "    relive.log('local', probe(net, count, last, len(history)))\n"
        f"    return last\nlast = main({taken}) or 0.0\n"
    )


def _trainer(parts: dict[str, Any], loop: str, block: Any) -> str:
    """A method, with the state of its object."""
    inner = re.sub(r"(?<![\w.])count\b", "self.count", loop)
    return (
        f"\nclass Trainer:\n    def __init__(self):\n        self.count = 0\n    def fit(self):\n"
        f"        global {_globals(parts)}\n{_indent(inner, 2)}"
        "trainer = Trainer()\ntrainer.fit()\ncount = trainer.count\n"
    )


def _folds(parts: dict[str, Any], loop: str, block: Any) -> str:
    """The main loop is entered several times, by a loop around it."""
    return (
        "for fold in relive.loop('fold', range(2)):\n    net.w[2] = 0.25 * (fold + 1)\n"
        + _indent(loop, 1)
        + (_indent(block("between"), 1))
    )


def _two(parts: dict[str, Any], loop: str, block: Any) -> str:
    """Two main loops, one after the other."""
    second = (
        "with relive.checkpointing(net=net, every=1):\n    for tune in relive.loop('tune', range(3)):\n"
        "        last = net.step(0.3, 0.2)\n        count += 1\n        for s in relive.loop('tune_step', range(2)):\n"
        "            meter.add(net.step(0.1 * s, 0.1))\n        relive.log('tune_norm', net.norm())\n"
    )
    return loop + block("between") + "\n" + second


def _helper(parts: dict[str, Any], loop: str, block: Any) -> str:
    """The nested loops stand in a function of their own."""
    inner, taken = _indent(_nested(parts, block) or "pass", 1), f"    global {_globals(parts)}\n"

    def calling(where: str) -> str:
        return block(where) + ("\nturn()" if where == "before" else "")

    outer = _main_loop({**parts, "nested": 0}, calling)
    return f"\ndef turn():\n{taken}{inner}\ndef main():\n{taken}{_indent(outer, 1)}main()\n"


_SHAPED = {
    "top": _top, "main": _main, "locals": _locals, "trainer": _trainer, "folds": _folds, "two": _two, "helper": _helper,
    "while": _main,
}  # fmt: skip
