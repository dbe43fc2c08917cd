"""Storage outside the home that keeps whole files under a name: a folder, or a bucket of an object store."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from relive.errors import Gone, ReliveError, StorageUnavailable
from relive.store.durable_files import make_folder, open_atomically

S3 = "s3://"
PART_BYTES = 16 << 20
PARTS_AT_ONCE = 4
RETRIES = 3
RETRY_S = 30
_READ_BYTES = 4 << 20
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_TOKEN", "AWS_ACCESS_KEY_ID")
_MAX_ERROR_CHARS = 300
_ERROR_CODE = re.compile(r"<Code>(\w+)</Code>")  # in the XML of an S3 error response
T = TypeVar("T")


class ObjectStore(Protocol):
    """Keeps files under names. Putting a file under an existing name replaces it."""

    url: str

    def put(self, name: str, source: Path) -> None:
        """Stores a copy of a file, completely or not at all."""

    def read(self, name: str) -> Iterator[bytes]:
        """Yields the bytes of a file, part by part."""

    def size(self, name: str) -> int | None:
        """Returns the size of a file in bytes; None when it does not exist."""

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""


def open_object_store(url: str) -> ObjectStore:
    """Returns the object store that the setting `spool` names."""
    check_object_store_address(url)
    return BucketObjectStore(url) if url.startswith(S3) else FolderObjectStore(url)


def check_object_store_address(url: str) -> None:
    """Raises `ReliveError` for an address of an unknown form. Whether the store can be reached shows on use."""
    if not url.startswith(S3) and not os.path.isabs(os.path.expanduser(url)):
        raise ReliveError(
            f'spool = "{url}" is not an address that relive knows;'
            " write s3://BUCKET/PREFIX, or the whole path of a folder"
        )
    if url.startswith(S3) and "@" in urlsplit(url).netloc:
        raise ReliveError(
            "the setting `spool` contains credentials, and relive stores its value; put them into AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, and write s3://BUCKET/PREFIX"
        )


class FolderObjectStore:
    """A folder, for example on a larger disk."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._folder = Path(url).expanduser()

    def put(self, name: str, source: Path) -> None:
        target = self._path(name)
        try:
            make_folder(target.parent)
            with source.open("rb") as read, open_atomically(target) as written:
                shutil.copyfileobj(read, written, _READ_BYTES)
        except OSError as error:
            raise self._unavailable(error) from error

    def read(self, name: str) -> Iterator[bytes]:
        try:
            with self._path(name).open("rb") as file:
                while part := file.read(_READ_BYTES):
                    yield part
        except FileNotFoundError:
            raise _gone(self.url, name) from None
        except OSError as error:
            raise self._unavailable(error) from error

    def size(self, name: str) -> int | None:
        try:
            return self._path(name).stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unavailable(error) from error

    def remove(self, name: str) -> None:
        try:
            self._path(name).unlink(missing_ok=True)
        except OSError as error:
            raise self._unavailable(error) from error

    def _path(self, name: str) -> Path:
        if ".." in PurePosixPath(name).parts or name.startswith("/"):
            raise ReliveError(f"{name!r} would lie outside {self.url}; nothing was done")
        return self._folder / name

    def _unavailable(self, error: OSError) -> StorageUnavailable:
        return StorageUnavailable(
            f"the object store {self.url} can't be used: {error}; check that it exists and is writable"
        )


class BucketObjectStore:
    """A bucket; the `AWS_…` environment variables give the endpoint and the credentials."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._obstore, self._store = _open_bucket(self.url)

    def put(self, name: str, source: Path) -> None:
        try:
            self._call(
                lambda: self._obstore.put(
                    self._store, name, source, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
                )
            )
        except FileNotFoundError as error:
            raise self._unavailable(error) from None

    def read(self, name: str) -> Iterator[bytes]:
        try:
            parts = self._call(lambda: iter(self._obstore.get(self._store, name).stream(_READ_BYTES)))
            while (part := self._call(lambda: next(parts, None))) is not None:
                yield bytes(part)
        except FileNotFoundError:
            raise _gone(self.url, name) from None

    def size(self, name: str) -> int | None:
        try:
            return int(self._call(lambda: self._obstore.head(self._store, name))["size"])
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        try:
            self._call(lambda: self._obstore.delete(self._store, name))
        except FileNotFoundError:
            return

    def _call(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except FileNotFoundError:
            raise
        except (self._obstore.exceptions.BaseError, OSError, ValueError) as error:
            raise self._unavailable(error) from None  # the original may show a signed request

    def _unavailable(self, error: Exception) -> StorageUnavailable:
        remedy = "check that it runs, and that AWS_ENDPOINT_URL, AWS_REGION and the credentials are set"
        return StorageUnavailable(f"the object store {self.url} can't be used: {_describe_error(error)}; {remedy}")


def _open_bucket(url: str) -> tuple[Any, Any]:
    try:
        import obstore
        import obstore.exceptions
        from obstore.store import S3Store
    except ImportError as error:
        raise ReliveError(f"{error}; install what object stores need with `pip install 'relive[s3]'`") from None
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
    try:
        store = S3Store.from_url(
            url,
            client_options={"allow_http": endpoint.startswith("http://")},
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
        )
    except (obstore.exceptions.BaseError, ValueError) as error:
        cause = _describe_error(error)
        raise ReliveError(f"the object store {url} can't be opened: {cause}; write s3://BUCKET/PREFIX") from None
    return obstore, store


def _describe_error(error: Exception) -> str:
    """Returns the message of an error without debug output and without credentials."""
    message, _, response = str(error).partition("\n\nDebug source")[0].partition("<?xml")
    code = _ERROR_CODE.search(response)
    cause = message.rpartition(" - ")[2]  # what precedes it is the request
    text = " ".join(cause.split()).rstrip(" .:") + (f" ({code[1]})" if code else "")
    for secret in (os.environ.get(name) for name in _SECRETS):
        text = text.replace(secret, "…") if secret else text
    return text if len(text) <= _MAX_ERROR_CHARS else text[:_MAX_ERROR_CHARS] + "…"


def _gone(url: str, name: str) -> Gone:
    return Gone(f"{name} is not in {url} any more; put it back, or restore an earlier checkpoint")
