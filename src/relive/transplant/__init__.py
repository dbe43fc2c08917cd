"""Carries statements from one version of code into another: text in, text out."""

from relive.transplant.results import Landing, Refusal, Statement, Transplant
from relive.transplant.statements import added_statements
from relive.transplant.transplant import transplant

__all__ = ["Landing", "Refusal", "Statement", "Transplant", "added_statements", "transplant"]
