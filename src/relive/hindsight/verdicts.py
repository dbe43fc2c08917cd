"""The rules that give a replayed value its verdict, from the evidence; `docs/explanation/proof.md` explains them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from relive.model import Verdict


class Agreement(IntEnum):
    """The result of comparing something with the record; a higher number is evidence against a value."""

    AGREES = 0
    NOTHING = 1  # nothing was compared
    DIFFERS = 2


class Reads(IntEnum):
    """Whether a value depends on state that no checkpoint holds, or on something outside of the script."""

    KNOWN = 0
    MAYBE_UNKNOWN = 1  # the code that ran before it uses unknown state
    COMPUTED_FROM_UNKNOWN = 2  # so do the assignments that lead to it
    UNKNOWN = 3  # its own statement does, or reads a clock, an address or the network


class Files(IntEnum):
    """Whether the files that the run read are as they were."""

    UNCHANGED = 0
    CHANGED = 1
    READ = 2  # and the statement itself reads files
    OUTSIDE = 3  # one outside of the project was read before that may be another one than the run saw


class Restored(IntEnum):
    """How the state that a value was computed from came back."""

    EXACTLY = 0  # or it was computed again from the start
    UNUSED_DIFFERS = 1  # something differs that the code which ran does not use
    INCOMPLETELY = 2  # the script had no object for something that the checkpoint holds
    USED_DIFFERS = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one value. `state` and `values`: since its restore, and in its own iteration.

    `next_state` and `next_value` are what was compared first afterwards, up to the next state that agrees.
    """

    state: Agreement = Agreement.NOTHING
    values: Agreement = Agreement.NOTHING
    next_state: Agreement = Agreement.NOTHING
    next_value: Agreement = Agreement.NOTHING
    reads: Reads = Reads.KNOWN
    restored: Restored = Restored.EXACTLY
    files: Files = Files.UNCHANGED
    is_seeded: bool = True  # no generator of the script seeds itself from the system
    is_undisturbed: bool = True  # nothing differs that the added statements may have changed themselves
    own_agrees: bool = False  # something that was compared in its own iteration agrees
    is_same_machine: bool = True  # else numbers are compared with a tolerance, and states are not compared

    @property
    def state_agrees(self) -> bool:
        return Agreement.AGREES in (self.state, self.next_state)

    @property
    def anything_agrees(self) -> bool:
        return self.state_agrees or Agreement.AGREES in (self.values, self.next_value)

    @property
    def next_differs(self) -> bool:
        return Agreement.DIFFERS in (self.next_state, self.next_value)


@dataclass(frozen=True, slots=True)
class Rule:
    """A verdict, the reason for it, and the evidence that it follows from. `ground` names the part that decides."""

    verdict: Verdict
    ground: str
    reason: str
    holds: Callable[[Evidence], bool]


(
    STATE, VALUES, START, OWN, READS, OUTSIDE, CHANGED, SEEDS, INCOMPLETE, NEXT, NOTHING, NO_STATE, MAYBE, UNUSED,
    MACHINE, PROOF,
) = (
    "state", "values", "start", "own", "reads", "outside", "changed", "seeds", "incomplete", "next", "nothing",
    "no state", "maybe", "unused", "machine", "proof",
)  # fmt: skip
# The first rule that holds gives the verdict. The table in docs/explanation/proof.md has the same rows.
RULES = (
    Rule(Verdict.CONTRADICTED, STATE, "the recorded state differs, before it or in its own iteration",
         lambda one: one.state is Agreement.DIFFERS),
    Rule(Verdict.CONTRADICTED, VALUES, "a recorded value differs, before it or in its own iteration",
         lambda one: one.values is Agreement.DIFFERS),
    Rule(Verdict.CONTRADICTED, START, "state that the code uses was not as recorded when it began",
         lambda one: one.restored is Restored.USED_DIFFERS),
    Rule(Verdict.UNVERIFIED, OWN, "an added statement itself changes state that was compared",
         lambda one: not one.is_undisturbed),
    Rule(Verdict.UNVERIFIED, READS, "it reads unknown state, a clock, an address or the network",
         lambda one: one.reads is Reads.UNKNOWN),
    Rule(Verdict.UNVERIFIED, READS, "it was computed from unknown state, and no state after it was compared",
         lambda one: one.reads is Reads.COMPUTED_FROM_UNKNOWN and one.next_state is not Agreement.AGREES),
    Rule(Verdict.UNVERIFIED, OUTSIDE, "a file outside of the project was read that may not be what the run saw",
         lambda one: one.files is Files.OUTSIDE),
    Rule(Verdict.UNVERIFIED, CHANGED, "a file has changed, and it reads files or no state after it was compared",
         lambda one: one.files is Files.READ
         or (one.files is Files.CHANGED and one.next_state is not Agreement.AGREES)),
    Rule(Verdict.UNVERIFIED, INCOMPLETE, "a part of the checkpoint could not be put back",
         lambda one: one.restored is Restored.INCOMPLETELY),
    Rule(Verdict.UNVERIFIED, NEXT, "what was compared next differs, and nothing in its own iteration agrees",
         lambda one: one.next_differs and not one.own_agrees),
    Rule(Verdict.UNVERIFIED, NOTHING, "no recorded state and no number that varies was compared",
         lambda one: not one.anything_agrees),
    Rule(Verdict.UNVERIFIED, SEEDS, "a generator seeds itself from the system, and no recorded state was compared",
         lambda one: not one.is_seeded and not one.state_agrees),
    Rule(Verdict.REPRODUCED, NEXT, "what was compared next differs",
         lambda one: one.next_differs),
    Rule(Verdict.REPRODUCED, NO_STATE, "recorded values agree, but no recorded state was compared",
         lambda one: not one.state_agrees),
    Rule(Verdict.REPRODUCED, MAYBE, "the code that ran may use unknown state",
         lambda one: one.reads is not Reads.KNOWN),
    Rule(Verdict.REPRODUCED, UNUSED, "state that the code does not use was not as recorded",
         lambda one: one.restored is Restored.UNUSED_DIFFERS),
    Rule(Verdict.REPRODUCED, MACHINE, "it was computed on another machine",
         lambda one: not one.is_same_machine),
    Rule(Verdict.PROVEN, PROOF, "the recorded state before or after it agrees, and it depends on nothing else",
         lambda one: True),
)  # fmt: skip


def judge(evidence: Evidence) -> Rule:
    """Returns the rule that gives a value its verdict."""
    return next(rule for rule in RULES if rule.holds(evidence))


def describe_unknown(text: str) -> str:
    """`tokenizer._tokenizer: tokenizers.Tokenizer is opaque` → what it is, and that no checkpoint holds it."""
    path, _, reason = text.partition(": ")
    kind, is_opaque, _ = reason.partition(" is opaque")
    if is_opaque:
        return f"an object of type {kind} is not in the checkpoints ({path})"
    return f"{path} is not in the checkpoints" + (f" ({reason})" if reason else "")


def describe_start(paths: Sequence[str], *, is_restored: bool, is_seeded: bool) -> str:
    """Says what was not as recorded when a replay began with a state, and why."""
    shown = "; ".join(paths[:3])
    if is_restored:
        return f"the checkpoint did not bring back the recorded state: {shown}"
    if not is_seeded:
        return f"the random generators were not seeded before relive began: {shown} at the entry of the loop"
    return f"the script was not deterministic before its loop: {shown} at the entry of the loop"


def describe_difference(paths: Sequence[str], iteration: int | None) -> str:
    """Says where the state is not the recorded one: at the end of an iteration, or of a loop."""
    where = f"iteration {iteration}" if iteration is not None else "the end of a loop"
    return f"the state differs from the recorded one at {where}: {'; '.join(paths[:3])}"
