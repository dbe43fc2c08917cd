"""What every place outside the home must do, whether it is a folder or a bucket of an S3-compatible object store."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relive.errors import Gone, ReliveError, StorageAway
from relive.store.chunks import object_stores
from relive.store.chunks.object_stores import BucketObjectStore, FolderObjectStore, ObjectStore, open_object_store


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.long)])
def depot(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_object_store(str(tmp_path / "depot"))
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
def test_what_is_put_comes_back(depot: ObjectStore, file: Any, size: int) -> None:
    content = os.urandom(size)
    depot.put("home-1/a.pack", file(content))

    assert depot.size("home-1/a.pack") == size
    assert b"".join(depot.read("home-1/a.pack")) == content


@pytest.mark.slow
def test_a_file_in_many_parts_comes_back_whole(depot: ObjectStore, file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_stores, "PART_BYTES", 5 << 20)  # the least that object stores take
    monkeypatch.setattr(object_stores, "_READ_BYTES", 1 << 20)
    content = os.urandom(12_000_000)
    depot.put("a.pack", file(content))
    parts = list(depot.read("a.pack"))

    assert len(parts) > 1
    assert b"".join(parts) == content


def test_what_is_put_again_takes_the_place_of_what_was_there(depot: ObjectStore, file: Any) -> None:
    depot.put("a.pack", file(b"old and longer"))
    depot.put("a.pack", file(b"new"))

    assert (depot.size("a.pack"), b"".join(depot.read("a.pack"))) == (3, b"new")


def test_what_is_not_there_is_told(depot: ObjectStore) -> None:
    assert depot.size("home-1/a.pack") is None
    with pytest.raises(Gone, match=r"a\.pack is not in .*; put it back"):
        list(depot.read("home-1/a.pack"))


def test_removing_is_for_good_and_may_be_done_twice(depot: ObjectStore, file: Any) -> None:
    depot.put("a.pack", file(b"content"))
    depot.put("b.pack", file(b"other"))
    depot.remove("a.pack")
    depot.remove("a.pack")

    assert (depot.size("a.pack"), depot.size("b.pack")) == (None, 5)


def test_another_who_opens_it_finds_the_same(depot: ObjectStore, file: Any) -> None:
    depot.put("home-1/a.pack", file(b"content"))

    assert b"".join(open_object_store(depot.url).read("home-1/a.pack")) == b"content"


# --- what only one side can meet --------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_told_with_the_remedy(tmp_path: Path, file: Any) -> None:
    (tmp_path / "depot").write_text("a file where a folder should be")
    with pytest.raises(StorageAway, match="see that it is there and may be written"):
        FolderObjectStore(str(tmp_path / "depot")).put("a.pack", file(b"content"))


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    source = file(b"content")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageAway, match="No space left"):
        FolderObjectStore(str(tmp_path / "depot")).put("a.pack", source)

    assert list((tmp_path / "depot").iterdir()) == []


@pytest.mark.parametrize("name", ["../a.pack", "/etc/passwd", "a/../../b"])
def test_a_name_never_leads_out_of_the_folder(tmp_path: Path, file: Any, name: str) -> None:
    with pytest.raises(ReliveError, match="outside"):
        FolderObjectStore(str(tmp_path / "depot")).put(name, file(b"content"))


@pytest.mark.parametrize("url", ["relative/folder", "ftp://host/x", "bucket"])
def test_a_place_that_nobody_knows_says_what_to_write(url: str) -> None:
    with pytest.raises(ReliveError, match="s3://BUCKET/PREFIX, or the whole path of a folder"):
        open_object_store(url)


def test_credentials_in_the_address_are_refused_without_being_shown() -> None:
    with pytest.raises(ReliveError, match="AWS_ACCESS_KEY_ID") as told:
        open_object_store("s3://me:hidden-secret@bucket/prefix")

    assert "hidden-secret" not in str(told.value)


@pytest.mark.long
def test_a_server_that_refuses_is_told_without_credentials(
    bucket: Any, file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-right-secret")
    with pytest.raises(StorageAway, match=r"SignatureDoesNotMatch.*credentials are set") as told:
        BucketObjectStore(bucket.url).put("a.pack", file(b"content"))

    assert "not-the-right-secret" not in f"{told.value!r} {told.value.__cause__!r}"
    assert bucket.KEY not in str(told.value)


def test_a_server_that_is_not_there_is_told(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr(object_stores, "RETRIES", 0)
    for name, value in {
        "ENDPOINT_URL": "http://127.0.0.1:1",
        "ACCESS_KEY_ID": "key1",
        "SECRET_ACCESS_KEY": "x1",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)

    with pytest.raises(StorageAway, match=r"the spool s3://bucket can't be used: .*; see that it runs"):
        BucketObjectStore("s3://bucket").put("a.pack", file(b"content"))


def test_without_obstore_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ReliveError, match=r"pip install 'relive\[s3\]'"):
        open_object_store("s3://bucket/prefix")
