"""The contract of object stores: a folder and a bucket of an S3-compatible service behave the same."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relive.errors import Gone, ReliveError, StorageUnavailable
from relive.store.chunks import object_stores
from relive.store.chunks.object_stores import BucketObjectStore, FolderObjectStore, ObjectStore, open_object_store


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.long)])
def object_store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_object_store(str(tmp_path / "object-store"))
    return open_object_store(f"{request.getfixturevalue('bucket').url}/{secrets.token_hex(4)}")


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "file"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.long
@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_what_is_put_is_read_back(object_store: ObjectStore, file: Any, size: int) -> None:
    content = os.urandom(size)
    object_store.put("home-1/a.pack", file(content))

    assert object_store.size("home-1/a.pack") == size
    assert b"".join(object_store.read("home-1/a.pack")) == content


@pytest.mark.slow
def test_a_file_in_many_parts_is_read_back_completely(
    object_store: ObjectStore, file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_stores, "PART_BYTES", 5 << 20)  # the least that object stores take
    monkeypatch.setattr(object_stores, "_READ_BYTES", 1 << 20)
    content = os.urandom(12_000_000)
    object_store.put("a.pack", file(content))
    parts = list(object_store.read("a.pack"))

    assert len(parts) > 1
    assert b"".join(parts) == content


def test_a_second_put_replaces_the_file(object_store: ObjectStore, file: Any) -> None:
    object_store.put("a.pack", file(b"old and longer"))
    object_store.put("a.pack", file(b"new"))

    assert (object_store.size("a.pack"), b"".join(object_store.read("a.pack"))) == (3, b"new")


def test_a_missing_file_is_reported(object_store: ObjectStore) -> None:
    assert object_store.size("home-1/a.pack") is None
    with pytest.raises(Gone, match=r"a\.pack is not in .*; put it back"):
        list(object_store.read("home-1/a.pack"))


def test_a_file_may_be_removed_twice(object_store: ObjectStore, file: Any) -> None:
    object_store.put("a.pack", file(b"content"))
    object_store.put("b.pack", file(b"other"))
    object_store.remove("a.pack")
    object_store.remove("a.pack")

    assert (object_store.size("a.pack"), object_store.size("b.pack")) == (None, 5)


def test_a_second_client_reads_the_same_file(object_store: ObjectStore, file: Any) -> None:
    object_store.put("home-1/a.pack", file(b"content"))

    assert b"".join(open_object_store(object_store.url).read("home-1/a.pack")) == b"content"


# --- what concerns only folders or only buckets -----------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_reported_with_the_remedy(tmp_path: Path, file: Any) -> None:
    (tmp_path / "object-store").write_text("a file where a folder should be")
    with pytest.raises(StorageUnavailable, match="check that it exists and is writable"):
        FolderObjectStore(str(tmp_path / "object-store")).put("a.pack", file(b"content"))


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    source = file(b"content")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageUnavailable, match="No space left"):
        FolderObjectStore(str(tmp_path / "object-store")).put("a.pack", source)

    assert list((tmp_path / "object-store").iterdir()) == []


@pytest.mark.parametrize("name", ["../a.pack", "/etc/passwd", "a/../../b"])
def test_a_name_never_leads_out_of_the_folder(tmp_path: Path, file: Any, name: str) -> None:
    with pytest.raises(ReliveError, match="outside"):
        FolderObjectStore(str(tmp_path / "object-store")).put(name, file(b"content"))


@pytest.mark.parametrize("url", ["relative/folder", "ftp://host/x", "bucket"])
def test_an_unknown_kind_of_address_is_refused_with_the_remedy(url: str) -> None:
    with pytest.raises(ReliveError, match="s3://BUCKET/PREFIX, or the whole path of a folder"):
        open_object_store(url)


def test_credentials_in_the_address_are_refused_without_being_shown() -> None:
    with pytest.raises(ReliveError, match="AWS_ACCESS_KEY_ID") as raised:
        open_object_store("s3://me:hidden-secret@bucket/prefix")

    assert "hidden-secret" not in str(raised.value)


@pytest.mark.long
def test_a_refusal_is_reported_without_credentials(bucket: Any, file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-right-secret")
    with pytest.raises(StorageUnavailable, match=r"SignatureDoesNotMatch.*credentials are set") as raised:
        BucketObjectStore(bucket.url).put("a.pack", file(b"content"))

    assert "not-the-right-secret" not in f"{raised.value!r} {raised.value.__cause__!r}"
    assert bucket.KEY not in str(raised.value)


def test_an_unreachable_server_is_reported(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr(object_stores, "RETRIES", 0)
    for name, value in {
        "ENDPOINT_URL": "http://127.0.0.1:1",
        "ACCESS_KEY_ID": "key1",
        "SECRET_ACCESS_KEY": "x1",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)

    with pytest.raises(StorageUnavailable, match=r"the object store s3://bucket can't be used: .*; check that it runs"):
        BucketObjectStore("s3://bucket").put("a.pack", file(b"content"))


def test_without_obstore_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ReliveError, match=r"pip install 'relive\[s3\]'"):
        open_object_store("s3://bucket/prefix")
