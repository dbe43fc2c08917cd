"""Hindsight logging: a question about past runs, its plan, its execution, and the merge of the answers."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.execution import execute_plan
    from relive.hindsight.plan_inputs import plan_replay
    from relive.hindsight.replay_plan import Case, Plan, Question
    from relive.hindsight.replay_session import ReplaySession
    from relive.hindsight.run_results import Answer, RunAnswer

__getattr__ = lazy_names(__name__)
