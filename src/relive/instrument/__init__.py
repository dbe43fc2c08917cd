"""Finds the training loops and log calls of a script, and rewrites its source to report them."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.instrument.log_calls import names_told, told_by_name
    from relive.instrument.loop_rewriter import HOOK, RULES, instrument
    from relive.instrument.loop_selection import LoopChoice
    from relive.instrument.printed_numbers import dotted, named_numbers
    from relive.instrument.project_survey import Survey, reachable, survey

__getattr__ = lazy_names(__name__)
