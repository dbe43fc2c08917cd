"""The evidence about replayed values: what was compared before and after each, and what the code read."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.evidence.segment_evidence import (
        SegmentFacts,
        SegmentVerdicts,
        judge_segment,
    )
    from relive.hindsight.evidence.timeline import RESTORED

__getattr__ = lazy_names(__name__)
