"""Logged values as curves: x axes, min–max pyramids, and the buckets that a chart of some pixels needs."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.query.series.lossless_json import wire_value
    from relive.query.series.pyramid_builder import build_pyramids
    from relive.query.series.series_reader import SeriesTerms, read_series

__getattr__ = lazy_names(__name__)
