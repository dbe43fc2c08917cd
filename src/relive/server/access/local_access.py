"""Access to `relive ui`: a ticket that is exchanged once for the secret of a cookie. Both live in memory only."""

from __future__ import annotations

import hmac
import secrets

_SECRET_BYTES = 32


class LocalAccess:
    """The access of the one user of `relive ui`, by the name of their account."""

    def __init__(self, user: str, port: int) -> None:
        self.user = user
        self.cookie = f"relive_ui_{port}"  # cookies are for all ports of a host, so that each port needs a name
        self.ticket = secrets.token_urlsafe(_SECRET_BYTES)
        self._secret = secrets.token_urlsafe(_SECRET_BYTES)
        self._is_redeemed = False

    def redeem(self, ticket: str) -> str | None:
        """Returns the secret for the cookie; None if the ticket is wrong or was redeemed before."""
        if self._is_redeemed or not hmac.compare_digest(ticket.encode(), self.ticket.encode()):
            return None
        self._is_redeemed = True
        return self._secret

    def knows(self, secret: str) -> bool:
        """Whether a cookie holds the secret, and the ticket was redeemed for it."""
        return self._is_redeemed and hmac.compare_digest(secret.encode(), self._secret.encode())
