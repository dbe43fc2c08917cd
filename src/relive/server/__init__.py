"""The HTTP server: receives ranges of journals into a store, and serves records and tables from it."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.server.server_process import ServerOptions, serve, show
    from relive.server.token_use import last_use
    from relive.server.tokens import SCOPES, Tokens

__getattr__ = lazy_names(__name__)
