"""The exceptions and the warning class of relive."""

from __future__ import annotations


class ReliveError(Exception):
    """The base of all errors that relive raises on purpose; the message ends in the remedy."""


class ArgError(ReliveError, ValueError):
    """A `--kwargs` value that can't be converted, or a name that no `relive.arg` uses."""


class QueryError(ReliveError, ValueError):
    """An invalid condition, query or name; the message has the position and the known columns."""


class NotFound(ReliveError, LookupError):
    """A run, name, chunk or artifact that isn't in this home."""


class Damaged(ReliveError):
    """Bytes at rest that don't match what was written."""


class MalformedValue(Damaged):
    """A recorded value that is not in the form that its tag promises: whoever sent it did not write it with relive."""


class Gone(NotFound, Damaged):
    """Bytes that were stored and no longer exist."""


class Untrusted(ReliveError):
    """Something that would run code of an author whom the user has not trusted."""


class StorageUnavailable(ReliveError):
    """A database or object store that can't be reached or refuses a request; the home is unaffected."""


class DiskTrouble(ReliveError, OSError):
    """A disk that is full or can't be written; what was stored before is unaffected."""


class Incomplete(ReliveError):
    """A run whose record is incomplete, so that it can't be promoted; `missing` lists what it lacks."""

    def __init__(self, message: str, missing: tuple[str, ...]) -> None:
        super().__init__(message)
        self.missing = missing


class VersionError(ReliveError):
    """A code version that could not be recorded or read."""


class VersionDamaged(VersionError, Damaged):
    """A code version whose objects in git are missing or not what was stored."""


class TransplantError(ReliveError):
    """A statement that could not be inserted into another version."""


class Unstable(ReliveError, TypeError):
    """A value whose type has no stable hash, that is, one equal in every process."""


class ReliveWarning(UserWarning):
    """Something that relive could not do; training continues."""


class GraphNotKept(ReliveError):
    """Gradients are computed through a restored tensor, whose graph of autograd no checkpoint holds."""
