"""What is known of one run before it is planned: its history, its patch, and the iterations asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from relive.hindsight.analysis import PatchFit
from relive.hindsight.plan.run_history import RunHistory
from relive.hindsight.plan.run_profile import RunProfile
from relive.hindsight.plan.segments import Costs, Selection
from relive.model import RunRecord
from relive.store.journal import ParsedJournal


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """The inputs of a plan for one run."""

    record: RunRecord
    history: RunHistory
    fit: PatchFit
    selection: Selection = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)
    parts: int = 1  # the most segments it may be cut into
    is_distrusted: bool = False  # its checkpoints failed to reproduce it when it ended
    without: tuple[str, ...] = ()  # manifests of checkpoints that `history` ignores

    @property
    def recorded(self) -> ParsedJournal:
        return self.history.recorded

    @property
    def profile(self) -> RunProfile:
        return self.history.profile
