"""Plans as data: which iterations to visit, from which checkpoint, at what cost."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.plan.cost_model import CostModel, Pace
    from relive.hindsight.plan.draft import Draft
    from relive.hindsight.plan.horizon import Horizon, HorizonTracker, shown_rows
    from relive.hindsight.plan.iteration_selection import SelectionTerms, select_iterations
    from relive.hindsight.plan.planner import FROM_START, UNREACHED, plan_run
    from relive.hindsight.plan.run_history import RankHistory, RunHistory, describe_ending, read_history
    from relive.hindsight.plan.run_profile import Loop, RunProfile
    from relive.hindsight.plan.segments import Costs, RunPlan, Segment, Selection, Skip, Visit

__getattr__ = lazy_names(__name__)
