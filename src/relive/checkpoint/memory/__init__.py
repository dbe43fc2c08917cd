"""State in memory: pytrees and their leaves, tensors as bytes, and the arena they are copied into."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.memory.arena import Arena, Layout, max_layout_bytes
    from relive.checkpoint.memory.parallel_copy import Copier
    from relive.checkpoint.memory.pytree import (
        Flattener,
        Json,
        SharedContainers,
        Unpicklable,
        is_leaf,
        is_plain,
        unflatten,
    )
    from relive.checkpoint.memory.tensors import (
        Leaf,
        LeafType,
        StoredTensor,
        TensorPlacement,
        build_tensor,
        fill_tensor,
        writable_memory,
    )

__getattr__ = lazy_names(__name__)
