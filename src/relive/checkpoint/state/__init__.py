"""What counts as state: a handler for each kind of object, and discovery of the objects around a loop."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.state.discovery import DiscoveredState
    from relive.checkpoint.state.frame_state import (
        OuterLoop,
        capture_outer_variables,
        capture_variables,
        discover_around_loop,
        frames_between,
        uncaptured_names,
        uncaptured_outer_variables,
        uncaptured_variables,
    )
    from relive.checkpoint.state.frame_variables import UncapturedValue, refill, restore_variables
    from relive.checkpoint.state.gradients import capture_gradients, has_loop_carried_gradients, restore_gradients
    from relive.checkpoint.state.loader_iterators import track_loader_iterator
    from relive.checkpoint.state.module_parts import ModulePartsCache
    from relive.checkpoint.state.object_state import ObjectHandler
    from relive.checkpoint.state.random_state import (
        capture_random_states,
        encoded_random_states,
        restore_encoded_random_states,
        restore_random_states,
    )
    from relive.checkpoint.state.state_handlers import (
        ModuleHandler,
        OptimizerHandler,
        StateHandler,
        handler_for,
        part_name,
    )
    from relive.checkpoint.state.trainer_state import Library, TrainerState, unwrapped
    from relive.checkpoint.state.user_frames import collect_user_frames, find_loop_frame, find_user_frame

__getattr__ = lazy_names(__name__)
