"""Hindsight logging: a question about past runs, its plan, its execution, and the merge of the answers."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.execution import Answer, RunAnswer, execute_plan
    from relive.hindsight.question import Plan, Question, plan_replay

__getattr__ = lazy_names(__name__)
