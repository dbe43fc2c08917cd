"""Small training programs, made up at random: loop shapes, kinds of state, ways out of loops, places of statements."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

HEAD = """
import random
import relive

class Net:
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

def probe(net, *more):
    return net.norm() + sum(float(one) for one in more)

random.seed({seed})
net = Net()
noise = random.Random(7)
meter = Meter()
history, table = [], {{}}
count, best, last = 0, -1e9, 0.0
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
]
PROBES = [
    "relive.log('probe', probe(net, last, count))",
    "relive.log('probe', probe(net, best, len(history), meter.total))",
    "relive.log('probe', probe(net, sum(table.values()), noise.getstate()[1][0]))",
    "relive.log('probe', probe(net, random.getstate()[1][1], count))",
]
ITEMS = ["range({n})", "list(range(10, 10 + {n}))", "(i * i for i in range({n}))", "'abcdefgh'[:{n}]"]
INNER = [
    "relive.loop('step', {items})",
    "enumerate(relive.loop('step', {items}))",
    "list(relive.loop('step', {items}))",
]
LEAVING = ["", "", "if count > {k}:\n    break", "if count % 5 == 4:\n    continue"]
PLACES = ("prefix", "before", "inside", "after", "suffix", "function")


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
    """One program: a main loop, perhaps a nested loop or two, perhaps in functions."""
    place = draw(st.sampled_from(PLACES))
    probe = draw(st.sampled_from(PROBES))
    some = st.lists(st.sampled_from(BODIES), min_size=1, max_size=4)
    parts = {
        "seed": draw(st.integers(0, 99)),
        "before": draw(some),
        "inside": draw(some),
        "after": draw(some),
        "nested": draw(st.sampled_from([0, 1, 1, 1, 2])),
        "items": draw(st.sampled_from(ITEMS)).format(n=draw(st.integers(2, 6))),
        "inner_items": draw(st.sampled_from(ITEMS[:3])).format(n=draw(st.integers(1, 4))),
        "inner": draw(st.sampled_from(INNER)),
        "main_leaves": draw(st.sampled_from(LEAVING)).format(k=draw(st.integers(2, 20))),
        "inner_leaves": draw(st.sampled_from(LEAVING)).format(k=draw(st.integers(2, 20))),
        "in_function": draw(st.booleans()),
        "logs": draw(st.sets(st.sampled_from(["before", "inside", "after", "suffix"]))),
        "every": draw(st.sampled_from(["every=1", "every=1", "every=2", "every=3", "overhead=0.5"])),
    }
    plain, asked = (_source(parts, place if with_it else "", probe) for with_it in (False, True))
    return Program(plain, asked, f"{place}: {probe}\n{asked}")


def _source(parts: dict, place: str, probe: str) -> str:
    def block(where: str) -> str:
        lines = list(parts.get(where, []))
        if where in parts["logs"]:
            lines.append(f"relive.log('{where}', probe(net, last))")
        if place == where:
            lines.append(probe)
        if place == "function" and where == "after":
            lines.append("report()")
        return "\n".join(lines)

    text = HEAD.format(seed=parts["seed"])
    reported = probe if place == "function" else "pass"
    text += f"\ndef report():\n    {reported}\n"
    if place == "prefix":
        text += probe + "\n"
    inner = _nested(parts, block)
    body = f"{block('before')}\n{inner}{block('after')}\n"
    if parts["main_leaves"]:
        body += parts["main_leaves"] + "\n"
    loop = f"with relive.checkpointing(net=net, {parts['every']}):\n"
    loop += f"    for epoch in relive.loop('epoch', {parts['items']}):\n" + _indent(body, 2)
    if parts["in_function"]:
        names = "count, best, last"
        text += f"\ndef main():\n    global {names}\n" + _indent(loop, 1) + "main()\n"
    else:
        text += loop
    return text + (block("suffix") or "pass") + "\nrelive.log('final', probe(net, last, count))\n"


def _nested(parts: dict, block) -> str:
    text = ""
    for at in range(parts["nested"]):
        items = parts["inner"].format(items=parts["inner_items"])
        if at:
            items = items.replace("'step'", "'second'")
        body = (block("inside") if not at else "net.w[1] += 0.01\nlast = net.norm()") + "\n"
        if parts["inner_leaves"]:
            body += parts["inner_leaves"] + "\n"
        text += f"for item in {items}:\n" + _indent(body, 1)
    return text
