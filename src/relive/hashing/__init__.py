"""Hashes of bytes, and of values so that equal ones have one hash in every process."""

from typing import TYPE_CHECKING

from relive.doors import lazily
from relive.hashing.digests import digest, hasher

if TYPE_CHECKING:
    from relive.hashing.preimage import plain_binder, register, stable_hash

__all__ = ["digest", "hasher", "plain_binder", "register", "stable_hash"]

# A script that is recorded waits for the hashing of bytes, not for that of values.
__getattr__ = lazily(__name__, {"preimage": "plain_binder register stable_hash"})
