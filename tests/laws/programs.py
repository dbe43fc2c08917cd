"""Small training programs, made up at random: loop shapes, kinds of state, ways out of loops, places of statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

HEAD = """
import collections
import itertools
import random
{numpy}import relive

class Net:
    made = 0
    def __init__(self):
        self.w = [0.5, -0.25, 0.125]
        self.seen = 0
    def step(self, x, lr):
        self.w = [w * 0.9 + lr * x + random.gauss(0, 0.01) for w in self.w]
        self.seen += 1
        return sum(self.w)
    def norm(self):
        return sum(w * w for w in self.w)

class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0
    def add(self, value):
        self.total += value
        self.count += 1
    @property
    def mean(self):
        return self.total / max(1, self.count)

class Loader:
    def __init__(self, items):
        self.items = items
    def __iter__(self):
        order = list(self.items)
        random.shuffle(order)
        return iter(order)
    def __len__(self):
        return len(self.items)

class Slotted:
    __slots__ = ("value",)
    def __init__(self):
        self.value = 0.0

def grow(items, value):
    items.append(value)

def bump():
    global calls
    calls += 1
    return calls

def counter():
    n = 0
    def add():
        nonlocal n
        n += 1
        return n
    return add

def remember(value, kept=[]):
    kept.append(value)
    return len(kept)

def bar(items):
    for item in items:
        yield item

def draw():
    return next(hidden)

def probe(net, *more):
    return net.norm() + sum(float(one) for one in more)

random.seed({seed})
net = Net()
noise = random.Random(7)
meter, other = Meter(), Meter()
meters = {{"a": Meter(), "b": [Meter()]}}
slotted = Slotted()
history, table, recent = [], {{}}, collections.deque(maxlen=3)
alias = history
seen, counts = set(), collections.Counter()
count, best, last, calls = 0, -1e9, 0.0, 0
stream = iter(range(100000))
hidden = itertools.count(3)
ticks = counter()
{vectors}
"""

# Statements of an iteration's body. Each is deterministic given the state that a checkpoint should hold.
BODIES = [
    "last = net.step(noise.random(), 0.1)",
    "count += 1",
    "history.append(net.norm())",
    "table[count % 3] = last",
    "meter.add(last)",
    "last = last + random.random()",
    "best = max(best, net.norm())",
    "if count % 4 == 3:\n    last = -last",
    "net.w[0] += random.uniform(-0.1, 0.1)",
    "grow(history, last)",
    "last += bump()",
    "last += ticks()",
    "last += remember(last)",
    "Net.made += 1",
    "last += float(next(stream))",
    "last += draw()",
    "recent.append(last)",
    "seen.add(count % 7)",
    "counts[count % 3] += 1",
    "meters['a'].add(last)",
    "meters['b'][0].add(last)",
    "slotted.value += 1.5",
    "net.extra = last * 0.5",
    "bump.calls = getattr(bump, 'calls', 0) + 1",
    "try:\n    if count % 3 == 1:\n        raise ValueError(last)\n    last += 0.5\nexcept ValueError as error:\n"
    "    last -= 0.25\n    count += 1",
    "k = 0\nwhile k < 3:\n    k += 1\n    last += 0.125 * k",
    "meter, other = other, meter",
    "meter = Meter()",
    "table = {**table, 'n': last}",
    "alias.append(1.0)",
    "best, last = last, best",
    "last = sum(x for x in history[-2:]) + last",
    "history[:] = history[-4:]",
    "del table\ntable = {0: last}",
]
NUMPY_BODIES = [
    "vec += rng.normal(size=3)",
    "vec[count % 3] = last",
    "last += float(np.random.normal())",
    "vec = vec * 0.5",
    "np.add(vec, 1.0, out=vec)",
    "last += float(vec.sum())",
    "view[0] += 1.0",
]
VECTORS = "np.random.seed(3)\nrng = np.random.default_rng(5)\nvec = np.zeros(3)\nview = vec[:2]"
PROBES = [
    "relive.log('probe', probe(net, last, count))",
    "relive.log('probe', probe(net, best, len(history), meter.total))",
    "relive.log('probe', probe(net, sum(map(float, table.values())), noise.getstate()[1][0]))",
    "relive.log('probe', probe(net, random.getstate()[1][1], count))",
    "relive.log('probe', probe(net, calls, sum(recent), len(seen), sum(counts.values())))",
    "relive.log('probe', probe(net, meters['a'].total, meters['b'][0].mean, slotted.value, other.total))",
    "relive.log('probe', probe(net, ticks(), remember(0), Net.made, getattr(net, 'extra', 0.0)))",
    "relive.log('probe', probe(net, len(alias), sum(history)))\nlast_probe = last",
    "relive.log('probe', f'{last!r} {count} {sorted(seen)}')",
]
NUMPY_PROBES = [
    "relive.log('probe', probe(net, vec.sum(), view[0], np.random.get_state()[1][0], "
    "rng.bit_generator.state['uinteger']))"
]
ITEMS = [
    "range({n})", "list(range(10, 10 + {n}))", "(i * i for i in range({n}))", "'abcdefgh'[:{n}]", "Loader(range({n}))",
    "zip(range({n}), 'abcdefgh')", "enumerate(list('abcdefgh')[:{n}])", "range(20, 20 + 2 * {n}, 2)", "range(0)",
]  # fmt: skip
WRAPPED = [
    "relive.loop('{name}', {items})", "enumerate(relive.loop('{name}', {items}))",
    "bar(relive.loop('{name}', {items}))",
    "zip(relive.loop('{name}', {items}), itertools.count())",
]  # fmt: skip
INNER = [*WRAPPED, "list(relive.loop('{name}', {items}))", "bar(enumerate(relive.loop('{name}', {items})))"]
LEAVING = [
    "", "", "", "if count > {k}:\n    break", "if count % 5 == 4:\n    continue",
    "try:\n    if count > {k}:\n        break\nfinally:\n    last += 0.5",
]  # fmt: skip
RETURNING = "if count > {k}:\n    return last"
ELSE = "else:\n    last += 100.0\n"
PLACES = ("prefix", "before", "inside", "after", "suffix", "function", "method", "between")
SHAPES = ("top", "top", "main", "main", "locals", "trainer", "folds", "two", "helper")


@dataclass(frozen=True)
class Program:
    """A program without the statement, and with it."""

    plain: str
    asked: str
    description: str


def _indent(text: str, depth: int) -> str:
    return "".join("    " * depth + line + "\n" for line in text.splitlines())


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """One program: a main loop or two, perhaps nested loops, perhaps in functions or a method."""
    place = draw(st.sampled_from(PLACES))
    numpy = draw(st.sampled_from([False, False, True]))
    shape = draw(st.sampled_from(SHAPES))
    probe = draw(st.sampled_from(PROBES + (NUMPY_PROBES if numpy else [])))
    some = st.lists(st.sampled_from(BODIES + (NUMPY_BODIES if numpy else [])), min_size=1, max_size=4)
    ways = [*LEAVING, RETURNING] if shape in ("locals", "trainer", "helper") else LEAVING
    main_leaves, inner_leaves = draw(st.sampled_from(ways)), draw(st.sampled_from(ways))
    parts: dict[str, Any] = {
        "seed": draw(st.integers(0, 99)), "numpy": numpy, "shape": shape,
        "before": draw(some), "inside": draw(some), "after": draw(some), "between": draw(some),
        "nested": draw(st.sampled_from([0, 1, 1, 1, 2])),
        "items": draw(st.sampled_from(ITEMS)).format(n=draw(st.integers(1, 6))),
        "inner_items": draw(st.sampled_from(ITEMS)).format(n=draw(st.integers(1, 4))),
        "main": draw(st.sampled_from([WRAPPED[0], WRAPPED[0], *WRAPPED])),
        "inner": draw(st.sampled_from(INNER)),
        "main_leaves": main_leaves.format(k=draw(st.integers(2, 20))),
        "inner_leaves": inner_leaves.format(k=draw(st.integers(2, 20))),
        "main_else": draw(st.sampled_from([False, False, False, True])),
        "inner_else": draw(st.sampled_from([False, False, False, True])),
        "plain_inner": draw(st.sampled_from([False, False, False, True])),
        "skipblock": draw(st.sampled_from([False, False, False, True])),
        "same_name": draw(st.sampled_from([False, False, False, True])),
        "logs": draw(st.sets(st.sampled_from(["before", "inside", "after", "suffix"]))),
        "every": draw(st.sampled_from(["every=1", "every=1", "every=2", "every=3", "overhead=0.5"])),
    }  # fmt: skip
    plain, asked = (_source(parts, place if with_it else "", probe) for with_it in (False, True))
    return Program(plain, asked, f"{place}: {probe}\n{asked}")


def _source(parts: dict[str, Any], place: str, probe: str) -> str:
    def block(where: str) -> str:
        lines = list(parts.get(where, []))
        if where in parts["logs"]:
            lines.append(f"relive.log('{where}', probe(net, last))")
        if place == where:
            lines.append(probe)
        if where == "after":
            lines.append("report()\nasking.ask()")
        return "\n".join(lines)

    vectors = VECTORS if parts["numpy"] else ""
    text = HEAD.format(seed=parts["seed"], numpy="import numpy as np\n" if parts["numpy"] else "", vectors=vectors)
    text += f"\ndef report():\n    {_one_line(probe) if place == 'function' else 'pass'}\n"
    asking = _one_line(probe) if place == "method" else "pass"
    text += f"\nclass Asking:\n    def ask(self):\n        {asking}\nasking = Asking()\n"
    if place == "prefix":
        text += probe + "\n"
    if parts["skipblock"]:
        text += _skipblock(parts)
    text += _SHAPED[parts["shape"]](parts, _main_loop(parts, block), block)
    return text + (block("suffix") or "pass") + "\nrelive.log('final', probe(net, last, count))\n"


def _one_line(probe: str) -> str:
    return probe.splitlines()[0]


def _skipblock(parts: dict[str, Any]) -> str:
    body = "\n".join(parts["between"])
    return f"pre = relive.skipblock('warmup')\nif pre.step_into():\n{_indent(body, 1)}pre.end(net=net)\n"


def _main_loop(parts: dict[str, Any], block: Any) -> str:
    body = f"{block('before')}\n{_nested(parts, block)}{block('after')}\n"
    if parts["main_leaves"]:
        body += parts["main_leaves"] + "\n"
    items = parts["main"].format(name="epoch", items=parts["items"])
    loop = f"with relive.checkpointing(net=net, {parts['every']}):\n"
    loop += f"    for epoch in {items}:\n" + _indent(body, 2)
    return loop + (_indent(ELSE, 1) if parts["main_else"] else "")


def _nested(parts: dict[str, Any], block: Any) -> str:
    text = ""
    for at in range(parts["nested"]):
        name = "step" if not at or parts["same_name"] else "second"
        items = parts["inner_items"] if parts["plain_inner"] and not at else None
        items = items or parts["inner"].format(name=name, items=parts["inner_items"])
        body = (block("inside") if not at else "net.w[1] += 0.01\nlast = net.norm()") + "\n"
        if parts["inner_leaves"]:
            body += parts["inner_leaves"] + "\n"
        text += f"for item in {items}:\n" + _indent(body, 1) + (ELSE if parts["inner_else"] else "")
    return text


# --- where the main loop stands ---------------------------------------------------------------------------------------

_GLOBALS = "calls, count, best, last, meter, other, table, last_probe, k, error"


def _globals(parts: dict[str, Any]) -> str:
    return _GLOBALS + (", vec" if parts["numpy"] else "")


def _top(parts: dict[str, Any], loop: str, block: Any) -> str:
    return loop


def _main(parts: dict[str, Any], loop: str, block: Any) -> str:
    return f"\ndef main():\n    global {_globals(parts)}\n" + _indent(loop, 1) + "main()\n"


def _locals(parts: dict[str, Any], loop: str, block: Any) -> str:
    """Everything that changes is a local variable of a function."""
    taken = "meter, other, table, history, recent, seen, counts, stream" + (", vec, view" if parts["numpy"] else "")
    return (
        f"\ndef main({taken}):\n    count, best, last, alias = 0, -1e9, 0.0, history\n{_indent(loop, 1)}"
        "    relive.log('local', probe(net, count, last, len(history)))\n"
        f"    return last\nlast = main({taken}) or 0.0\n"
    )


def _trainer(parts: dict[str, Any], loop: str, block: Any) -> str:
    """A method, with the state of its object."""
    inner = (
        loop.replace("count", "self.count").replace("self.counts", "counts").replace("meter.self.count", "meter.count")
    )
    inner = inner.replace("itertools.self.count()", "itertools.count()")
    return (
        f"\nclass Trainer:\n    def __init__(self):\n        self.count = 0\n    def fit(self):\n"
        f"        global {_globals(parts).replace('count, ', '')}, count\n{_indent(inner, 2)}"
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
    outer = _main_loop({**parts, "nested": 0}, block).replace(
        "\n        " + block("before").splitlines()[-1] + "\n",
        "\n        " + block("before").splitlines()[-1] + "\n        turn()\n",
        1,
    )
    return f"\ndef turn():\n{taken}{inner}\ndef main():\n{taken}{_indent(outer, 1)}main()\n"


_SHAPED = {
    "top": _top, "main": _main, "locals": _locals, "trainer": _trainer, "folds": _folds, "two": _two, "helper": _helper,
}  # fmt: skip
