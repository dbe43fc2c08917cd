"""Memory for copies of the state: the bytes of buffers, and the arena they are copied into."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.memory.arena import Arena, Layout, max_layout_bytes
    from relive.checkpoint.memory.leaf import Leaf
    from relive.checkpoint.memory.memory_digest import MemoryDigest
    from relive.checkpoint.memory.parallel_copy import Copier

__getattr__ = lazy_names(__name__)
