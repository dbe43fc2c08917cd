"""The specification of the routes that ask past runs for new values."""

from __future__ import annotations

from relive.server.openapi import RouteSpec, object_schema

_QUESTION = object_schema(
    id="string", state="string", names="array", done="integer", of="integer", took_s="number", values="integer",
    verdicts="object", errors="array", runs="array",
)  # fmt: skip
_TEXTS = {"type": "array", "items": {"type": "string"}}
_MAYBE = {"type": ["string", "null"]}

ASK_PLAN = RouteSpec(
    "POST", "/api/ask/plan", "read", "Plan a question to past runs, and price it.",
    body={
        "type": "object", "additionalProperties": False,
        "properties": {
            "names": _TEXTS, "runs": _TEXTS, "where": _MAYBE, "statement": _MAYBE, "file": _MAYBE,
            "line": {"type": ["integer", "null"]}, "source": _MAYBE, "again": {"type": "boolean"},
            "from_start": {"type": "boolean"},
        },
    },
    answer=object_schema(plan="string", rows="array", total_s="number", refused="array"),
)  # fmt: skip
ASK_START = RouteSpec(
    "POST", "/api/ask/{plan}/start", "read", "Begin to replay a plan.", status=202,
    answer=object_schema(question="string"),
)  # fmt: skip
QUESTIONS = RouteSpec(
    "GET", "/api/ask/questions", "read", "The questions that were started, the newest first.",
    answer=object_schema(questions={"type": "array", "items": _QUESTION}),
)  # fmt: skip
QUESTION = RouteSpec(
    "GET", "/api/ask/questions/{question}", "read", "How far a question is, and what came out.", answer=_QUESTION
)
STOP_QUESTION = RouteSpec(
    "DELETE", "/api/ask/questions/{question}", "read", "Stop a question; what it has is kept.", answer=_QUESTION
)
