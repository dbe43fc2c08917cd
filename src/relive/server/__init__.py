"""The same store behind HTTP: ranges of journals come in, records and tables go out."""

from typing import TYPE_CHECKING

from relive.doors import lazily

if TYPE_CHECKING:
    from relive.server.serving import Options, serve
    from relive.server.tokens import SCOPES, Token, Tokens

__all__ = ["SCOPES", "Options", "Token", "Tokens", "serve"]

# The command line names tokens without loading a web server.
__getattr__ = lazily(__name__, {"serving": "Options serve", "tokens": "SCOPES Token Tokens"})
