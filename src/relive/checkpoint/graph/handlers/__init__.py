"""Handlers of all types: the content of an object, and how an object gets a content."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.graph.handlers.attributes import own_dict, skip_attributes
    from relive.checkpoint.graph.handlers.folder_state import FolderState
    from relive.checkpoint.graph.handlers.process_state import (
        FinalizerState,
        LibraryState,
        ProcessState,
        RandomState,
        have_same_random_states,
    )
    from relive.checkpoint.graph.handlers.torch_objects import ModuleHandler, differ_in_gradient

__getattr__ = lazy_names(__name__)
