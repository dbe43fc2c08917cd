"""State of a running script that is no object of its own: frames, variables, random states, data loaders."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.state.frame_variables import UncapturedValue, set_variables
    from relive.checkpoint.state.gradients import has_loop_carried_gradients
    from relive.checkpoint.state.library_settings import current_library_settings
    from relive.checkpoint.state.loader_iterators import is_tracked_iterator, make_iterator, track_loader_iterator
    from relive.checkpoint.state.random_state import (
        capture_random_states,
        decode_random_states,
        encoded_random_states,
        restore_generator,
        restore_random_states,
    )
    from relive.checkpoint.state.user_frames import (
        OuterLoop,
        collect_user_frames,
        find_loop_frame,
        find_user_frame,
        frames_between,
    )
    from relive.checkpoint.state.variable_size import is_small
    from relive.checkpoint.state.warning_filters import current_filters, set_warning_filters

__getattr__ = lazy_names(__name__)
