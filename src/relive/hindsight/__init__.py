"""Ask later: the least work that yields a value nobody logged, from checkpoints, checked against the record."""

from typing import TYPE_CHECKING

from relive.doors import lazily

if TYPE_CHECKING:
    from relive.hindsight.answering import Answer, RunAnswer, answer
    from relive.hindsight.asking import Case, Plan, Question, planned
    from relive.hindsight.executor import Task
    from relive.hindsight.trust import read_check

__all__ = ["Answer", "Case", "Plan", "Question", "RunAnswer", "Task", "answer", "planned", "read_check"]

__getattr__ = lazily(
    __name__,
    {
        "answering": "Answer RunAnswer answer",
        "asking": "Case Plan Question planned",
        "executor": "Task",
        "trust": "read_check",
    },
)
