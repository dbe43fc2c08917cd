"""Finds the training loops and log calls of a script, and rewrites its source to report them."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.instrument.cell_trees import CELL_FILE_SUFFIX, parse_cells
    from relive.instrument.log_calls import logged_name_patterns, names_passed_to_loggers
    from relive.instrument.loop_rewriter import HOOK_NAME, RULES_VERSION, instrument_loops
    from relive.instrument.loop_selection import LoopChoice
    from relive.instrument.printed_numbers import find_named_numbers, flatten_dict
    from relive.instrument.project_survey import ProjectSurvey, reachable_files, survey_functions
    from relive.instrument.recorded_source import RecordedSource

__getattr__ = lazy_names(__name__)
