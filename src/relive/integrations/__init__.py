"""Frameworks that relive plugs into: one file each, loaded only by those who use the framework."""

from typing import TYPE_CHECKING

from relive.doors import lazily

if TYPE_CHECKING:
    from relive.integrations.pruning import should_prune

__all__ = ["should_prune"]

__getattr__ = lazily(__name__, {"pruning": "should_prune"})
