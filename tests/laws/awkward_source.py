"""Reads the awkward programs of the folder `awkward`: each with the questions that are asked of it later.

A program begins with `==== name` and what stands before its watched loop. Parts follow, each behind a line of its own:

    ---- loop         what stands in the loop; `epoch` counts its iterations
    ---- late         an expression that is asked for at the end of the loop's last two iterations, unless there is none
    ---- after        and one that is asked for behind the loop, if it is another
    ---- whole        the whole source instead of all these, with `# probe NAME: EXPRESSION` where a statement is added
    ---- file NAME    a file that lies beside the script
    ---- env NAME=X   in the environment of the run that is recorded, but not of its replay
    ---- ends badly   the run does not come to its end

In files whose name begins with `torch`, a model learns in the loop.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "awkward"
ITERATIONS = 8
LATE = 6  # the first iteration that is asked of the probe `late`
_PROBE = re.compile(r"^( *)# probe (\w+): (.*)\n", re.MULTILINE)

PLAIN_HEAD = """
class Net:
    def __init__(self):
        self.w = 1.0
    def step(self, x):
        self.w = self.w * 0.9 + x

net = Net()
"""
TORCH_HEAD = """
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

def learn(opt=opt):
    loss = model(torch.randn(4, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()
"""
_PLAIN = """
import relive
{head}
{setup}
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range({iterations})):
        net.step(0.1 * epoch)
{loop}
        relive.log("w", net.w)
        # probe late: {late}
# probe after: {after}
"""
_TORCH = """
import relive
{head}
{setup}
with relive.checkpointing(model=model, opt=opt, every=1):
    for epoch in relive.loop("epoch", range({iterations})):
        loss = learn()
{loop}
        relive.log("loss", loss)
        # probe late: {late}
# probe after: {after}
"""


@dataclass(frozen=True)
class Awkward:
    """A program. `# probe NAME: EXPRESSION` in its source is a statement that is added later.

    Probes whose names begin with the same word, up to a `_`, are asked for at once: `late_loss` and `late_rate`.
    """

    name: str
    source: str
    files: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)  # of the run that is recorded, not of its replay
    ends_badly: bool = False
    late: int = LATE
    is_hands_free: bool = False  # it knows nothing of relive
    pieces: tuple[str, str, str] | None = None  # what stands before the loop and in it, and what is asked for
    needs_torch: bool = False

    @property
    def probes(self) -> tuple[str, ...]:
        return tuple(found[1] for found in _PROBE.findall(self.source))

    @property
    def plain(self) -> str:
        return _PROBE.sub("", self.source)

    @property
    def asked(self) -> str:
        statement = r'print("\2:", \3)' if self.is_hands_free else r'relive.log("\2", \3)'
        return _PROBE.sub(rf"\1{statement}\n", self.source)

    @property
    def questions(self) -> dict[str, list[str]]:
        """The probes that are asked for at once."""
        found: dict[str, list[str]] = {}
        for probe in self.probes:
            found.setdefault(probe.partition("_")[0], []).append(probe)
        return found


def read_programs(folder: Path = FOLDER) -> Iterator[Awkward]:
    """All programs of a folder."""
    for path in sorted(folder.glob("*.txt")):
        for text in re.split(r"^==== ", path.read_text(), flags=re.MULTILINE)[1:]:
            yield _parsed(text, needs_torch=path.name.startswith("torch"))


def _parsed(text: str, *, needs_torch: bool) -> Awkward:
    first, *parts = re.split(r"^---- ", text, flags=re.MULTILINE)
    name, _, setup = first.partition("\n")
    found = {head: body for head, _, body in (part.partition("\n") for part in parts)}
    env = dict(head.removeprefix("env ").split("=") for head in found if head.startswith("env "))
    files = {head.removeprefix("file "): body for head, body in found.items() if head.startswith("file ")}
    if "whole" in found:
        return Awkward(name, found["whole"].strip() + "\n", files, env, "ends badly" in found)
    late = found.get("late", "epoch").strip()
    pieces = setup.strip(), found["loop"].strip("\n"), late
    source = (_TORCH if needs_torch else _PLAIN).format(
        head=(TORCH_HEAD if needs_torch else PLAIN_HEAD).strip(), setup=pieces[0], iterations=ITERATIONS, late=late,
        loop=textwrap.indent(pieces[1], " " * 8), after=found.get("after", late).strip(),
    )  # fmt: skip
    return Awkward(name, source.strip() + "\n", files, env, pieces=pieces, needs_torch=needs_torch)
