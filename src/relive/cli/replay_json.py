"""Plans and answers of replays as JSON: for pages, and for `relive replay --json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relive.hindsight.notebooks import place_of

if TYPE_CHECKING:
    from relive.hindsight import Answer, Case, Plan


MAX_PATCH_CHARS = 20_000
MAX_TEXTS = 20  # notes, errors and tracebacks that are told of a run


def landing_text(case: Case) -> str:
    """The places at which the statements of a case were added."""
    files = case.patch.files
    return ", ".join(place_of(added.file, added.line, files.get(added.file, "")) for added in case.patch.added)


def plan_json(plan: Plan) -> dict[str, Any]:
    """Returns a plan: a row for each run, the price, and what is refused."""
    rows = [
        {
            "run": case.record.run, "version": case.record.version,
            "lands": landing_text(case),
            "confidence": case.patch.confidence, "guess": case.patch.confidence == "low", "depth": case.plan.depth,
            "iterations": case.plan.iterations, "how": case.plan.resume, "segments": len(case.plan.segments),
            "checkpoints": len({visit.restore for one in case.plan.segments for visit in one.visits if visit.restore}),
            "predicted_s": case.plan.cost_s, "patch": case.patch.diff[:MAX_PATCH_CHARS],
            "notes": list(dict.fromkeys([*case.plan.reasons, *case.patch.notes])),
        }
        for case in plan.cases
    ]  # fmt: skip
    return {
        "names": list(plan.question.names), "rows": rows, "total_s": plan.cost_s, "work_s": plan.work_s,
        "workers": plan.workers, "refused": [{"run": run, "why": why} for run, why in plan.refusals],
    }  # fmt: skip


def answer_json(found: Answer) -> dict[str, Any]:
    """Returns what came out: values and verdicts of each run, and what went wrong."""
    return {
        "values": found.added, "verdicts": found.verdicts, "reproduced": found.reproduced, "took_s": found.took_s,
        "is_stopped": found.is_stopped, "refused": [{"run": run, "why": why} for run, why in found.refusals],
        "runs": [
            {
                "run": run.run, "values": run.added, "verdict": run.verdict, "verdicts": run.verdicts,
                "replay": run.replay, "notes": run.notes[:MAX_TEXTS], "causes": run.causes[:MAX_TEXTS],
                "errors": [*run.missing[:MAX_TEXTS], *run.tracebacks[:MAX_TEXTS]],
            }
            for run in found.runs
        ],
    }  # fmt: skip
