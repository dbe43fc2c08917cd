"""relive inside other frameworks: one file for each, loaded by whoever uses that framework."""

from typing import TYPE_CHECKING

from relive.doors import lazily

if TYPE_CHECKING:
    from relive.integrations.pruning import should_prune

__all__ = ["should_prune"]

__getattr__ = lazily(__name__, {"pruning": "should_prune"})
