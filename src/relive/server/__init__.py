"""The same store behind HTTP: ranges of journals come in, records and tables go out."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.server.server_process import ServerOptions, serve
    from relive.server.tokens import SCOPES, Tokens

__getattr__ = lazy_names(__name__)
