"""Hashes of bytes, and of values so that equal ones have one hash in every process."""

from __future__ import annotations

from relive.hashing.preimage import digest, hasher, register, stable_hash

__all__ = ["digest", "hasher", "register", "stable_hash"]
