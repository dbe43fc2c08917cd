"""How browsers get in: login with a token, and the one-time address of `relive ui`."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.server.access.local_access import LocalAccess
    from relive.server.access.return_paths import login_path, return_path, url_prefix

__getattr__ = lazy_names(__name__)
