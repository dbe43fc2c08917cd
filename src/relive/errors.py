"""Every exception and warning that relive raises, with the sentence that says what to do."""

from __future__ import annotations


class ReliveError(Exception):
    """The base of all errors that relive raises on purpose; the message ends in the remedy."""


class ArgError(ReliveError, ValueError):
    """A `--kwargs` value that can't be converted, or a name that no `relive.arg` asks for."""


class QueryError(ReliveError, ValueError):
    """A where clause, a query or a name that can't be understood; carries the position and the known columns."""


class NotFound(ReliveError, LookupError):
    """A run, name, chunk or artifact that isn't in this home."""


class Damaged(ReliveError):
    """Bytes at rest that don't match what was written."""


class Gone(NotFound, Damaged):
    """Bytes that were stored and aren't there any more."""


class StorageAway(ReliveError):
    """A database or an object store that can't be reached, or refuses; what is in the home is not touched."""


class Incomplete(ReliveError):
    """A run that lacks part of its record, so that it can't stand for a model; `missing` lists what."""

    def __init__(self, message: str, missing: tuple[str, ...]) -> None:
        super().__init__(message)
        self.missing = missing


class VersionError(ReliveError):
    """The code version could not be taken or read."""


class TransplantError(ReliveError):
    """A statement that could not be put into another version."""


class Unstable(ReliveError, TypeError):
    """A value whose type has no hash that stays the same from process to process."""


class ReliveWarning(UserWarning):
    """Something relive could not do; training goes on."""
