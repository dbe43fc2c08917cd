"""Named models: versions, aliases and promotions, stored as lines of a ledger."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.store.registry import model_registry
    from relive.store.registry.model_registry import Model, ModelVersion, Registry, split_reference
    from relive.store.registry.promotion import Promotion, promote

__getattr__ = lazy_names(__name__)
