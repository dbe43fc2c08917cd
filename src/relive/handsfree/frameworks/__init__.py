"""Training loops that a framework runs itself: Lightning, Hugging Face Trainer, Keras."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.handsfree.frameworks.framework_hooks import FRAMEWORK_HOOKS
    from relive.handsfree.frameworks.keras_loop import keras_callback
    from relive.handsfree.frameworks.lightning_loop import lightning_callback, patch_lightning
    from relive.handsfree.frameworks.transformers_loop import patch_transformers, transformers_callback

__getattr__ = lazy_names(__name__)
