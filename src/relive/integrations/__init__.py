"""Integrations with frameworks: one module each, which imports the framework."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.integrations.sweep_pruner import should_prune

__getattr__ = lazy_names(__name__)
