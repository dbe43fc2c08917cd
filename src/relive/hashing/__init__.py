"""Hashes of bytes, and hashes of values that are equal in every process."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.hashing.digests import digest, hasher
    from relive.hashing.preimage import plain_binder, register, stable_hash

__getattr__ = lazy_names(__name__)
