"""Carries log statements from one version of a project into another: texts in, texts out."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.transplant.log_statements import find_log_statements
    from relive.transplant.pipeline import transplant
    from relive.transplant.results import Landing, LogStatement

__getattr__ = lazy_names(__name__)
