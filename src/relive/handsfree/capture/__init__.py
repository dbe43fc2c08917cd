"""What a hands-free run captures: loops, log calls, configs and data loaders of the script."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.handsfree.capture import loop_hooks
    from relive.handsfree.capture.checkpoint_scopes import scopes
    from relive.handsfree.capture.explain_report import explainer
    from relive.handsfree.capture.generator_hooks import GENERATOR_HOOKS
    from relive.handsfree.capture.loader_hooks import LOADER_HOOKS
    from relive.handsfree.capture.log_capture import call_safely, script_logs
    from relive.handsfree.capture.logging_libraries import LOGGER_HOOKS
    from relive.handsfree.capture.loop_hooks import checkpointed_loop, current_driver
    from relive.handsfree.capture.method_wrapper import wrap_method

__getattr__ = lazy_names(__name__)
