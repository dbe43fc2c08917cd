"""Logged values as curves: x axes, min–max pyramids, and the buckets that a chart of some pixels needs."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.query.series.lossless_json import wire_value
    from relive.query.series.pyramid_builder import build_pyramids
    from relive.query.series.series_reader import SeriesTerms, loop_lengths, read_series
    from relive.query.series.step_axes import RELATIVE, STEP, TIME
    from relive.query.series.value_lines import value_axes

__getattr__ = lazy_names(__name__)
