"""The graph of all objects that a training can reach: walked, fingerprinted, captured and restored."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.graph.graph_state import GraphState, StoredNode, content_digest
    from relive.checkpoint.graph.guards import guard_of, held_source
    from relive.checkpoint.graph.matches import (
        changed_roots,
        changed_variables,
        match_objects,
        module_paths,
        named_token,
        tensor_paths,
    )
    from relive.checkpoint.graph.object_tokens import TYPED, VALUE, is_node
    from relive.checkpoint.graph.observer import Observation, Observer
    from relive.checkpoint.graph.plain_restore import PlainRestore
    from relive.checkpoint.graph.registry import (
        DISPLAY,
        WRITTEN_FILE,
        CannotRestore,
        NeedsTrust,
        UserHandler,
        register_handler,
    )
    from relive.checkpoint.graph.restore import GraphRestore, LiveObjects
    from relive.checkpoint.graph.roots import Roots, import_modules, set_roots, variables_left_out
    from relive.checkpoint.graph.state_differences import (
        Difference,
        compare_graphs,
        differing_nodes,
        differing_variables,
    )

__getattr__ = lazy_names(__name__)
