"""Hashes of bytes, and stable hashes of Python values: equal values have equal hashes in every process."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hashing.digests import digest, hasher
    from relive.hashing.preimage import Substitution, plain_dict_hasher, register, stable_hash

__getattr__ = lazy_names(__name__)
