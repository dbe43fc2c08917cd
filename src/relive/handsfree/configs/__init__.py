"""The settings of a script as args: what its config library parsed, and configs among its variables."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.handsfree.configs.config_capture import record_configs
    from relive.handsfree.configs.config_leaves import settings_of
    from relive.handsfree.configs.config_libraries import CONFIG_HOOKS
    from relive.handsfree.configs.config_notes import noted_settings
    from relive.handsfree.configs.hydra_configs import hook_hydra
    from relive.handsfree.configs.parse_hooks import listen_to

__getattr__ = lazy_names(__name__)
