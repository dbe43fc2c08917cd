"""Laws of fingerprints: content counts, location and time don't."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.errors import NotFound
from relive.record.provenance import data_fingerprint as module
from relive.record.provenance.data_fingerprint import (
    Fingerprint,
    data_version,
    fingerprint,
    fingerprint_file,
    fingerprint_folder,
    fingerprint_object,
)
from relive.record.provenance.fingerprint_cache import FingerprintCache
from relive.record.provenance.input_watch import InputWatch


def old(path: Path, content: bytes = b"content") -> Path:
    """A file that was written long enough ago to be cached."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (1_600_000_000, 1_600_000_000))
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[FingerprintCache]:
    with FingerprintCache(tmp_path / "fingerprints.sqlite") as opened:
        yield opened


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the files that were read, not found in the cache."""
    counted: list[int] = []
    honest = module._hash_file

    def counting(file: Any, size_bytes: int) -> str:
        counted.append(size_bytes)
        return honest(file, size_bytes)

    monkeypatch.setattr(module, "_hash_file", counting)
    return counted


# Files


def test_the_fingerprint_of_a_file_depends_on_its_content_alone(tmp_path: Path) -> None:
    from blake3 import blake3

    one, moved, other = (tmp_path / name for name in ("a.csv", "deep/b.txt", "c.csv"))
    old(one), old(moved), other.write_bytes(b"contenu")

    assert fingerprint_file(one) == fingerprint_file(moved) == fingerprint(str(one)) == fingerprint(moved)
    assert fingerprint_file(one) == Fingerprint("file", blake3(b"content").hexdigest(), 7, {})
    assert fingerprint_file(one).digest != fingerprint_file(other).digest
    assert fingerprint(f"file://{one}") == fingerprint(one)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (3 << 20) + 5])
def test_a_file_of_any_size_is_read_completely(tmp_path: Path, size: int) -> None:
    from blake3 import blake3

    content = os.urandom(size)

    assert fingerprint_file(old(tmp_path / "a", content)).digest == blake3(content).hexdigest()


def test_a_file_over_the_limit_is_sampled_and_says_so(tmp_path: Path) -> None:
    limit, size = 1 << 20, 200 << 20
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(size)
    before = fingerprint_file(path, full_bytes=limit)
    with path.open("r+b") as file:
        file.seek(size - 1)
        file.write(b"!")
    changed = fingerprint_file(path, full_bytes=limit)
    with path.open("ab") as file:
        file.write(b"!")
    longer = fingerprint_file(path, full_bytes=limit)

    assert before.detail == {"sampled": True}
    assert before.size_bytes == size
    assert len({before.digest, changed.digest, longer.digest}) == 3
    small = old(tmp_path / "small", b"x" * 100_000)
    assert fingerprint_file(small, full_bytes=99_999).digest != fingerprint_file(small, full_bytes=100_000).digest


# The cache


def test_an_unchanged_file_is_read_once(tmp_path: Path, cache: FingerprintCache, reads: list[int]) -> None:
    file = old(tmp_path / "a")
    link = tmp_path / "link"
    link.symlink_to(file)
    first = fingerprint_file(file, cache)
    second = fingerprint_file(link, cache)
    with FingerprintCache(tmp_path / "fingerprints.sqlite") as later:
        third = fingerprint_file(file, later)

    assert first == second == third
    assert reads == [7]


@pytest.mark.parametrize("change", ["size", "mtime", "inode"])
def test_a_changed_file_is_read_again(tmp_path: Path, cache: FingerprintCache, reads: list[int], change: str) -> None:
    file = old(tmp_path / "a")
    first = fingerprint_file(file, cache)
    if change == "inode":
        os.replace(old(tmp_path / "b", b"CONTENT"), file)
    else:
        file.write_bytes(b"CONTENT" if change == "mtime" else b"CONTENT!")
        os.utime(file, (1_600_000_000, 1_600_000_000 + (change == "mtime")))

    assert fingerprint_file(file, cache).digest != first.digest
    assert len(reads) == 2


def test_a_file_written_just_now_is_not_cached(tmp_path: Path, cache: FingerprintCache, reads: list[int]) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"content")
    fingerprint_file(file, cache)
    fingerprint_file(file, cache)

    assert len(reads) == 2


def test_a_sampled_digest_is_never_used_as_a_full_one(tmp_path: Path, cache: FingerprintCache) -> None:
    file = old(tmp_path / "a", b"x" * 1000)
    sampled = fingerprint_file(file, cache, full_bytes=10)

    assert fingerprint_file(file, cache) == fingerprint_file(file)
    assert fingerprint_file(file, cache, full_bytes=10) == sampled != fingerprint_file(file)


@pytest.mark.parametrize("trouble", ["no folder", "garbage", "a folder", "other schema", "locked"])
def test_the_digest_is_right_whatever_is_wrong_with_the_cache(
    tmp_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relive.record.provenance.fingerprint_cache._BUSY_S", 0.05)
    place = tmp_path / "home" / "fingerprints.sqlite"
    other = None
    if trouble != "no folder":
        place.parent.mkdir()
    if trouble == "garbage":
        place.write_bytes(b"not a database, but long enough to look like one" * 100)
    elif trouble == "a folder":
        place.mkdir()
    elif trouble in ("other schema", "locked"):
        other = sqlite3.connect(place, isolation_level=None)
        other.execute("create table files (other text)" if trouble == "other schema" else "begin exclusive")
    file = old(tmp_path / "a")

    with FingerprintCache(place) as cache:
        assert fingerprint_file(file, cache) == fingerprint_file(file, cache) == fingerprint_file(file)
    if other is not None:
        other.close()


READ_ONLY = """
import blake3, os, sys
from pathlib import Path
from relive.record.provenance.data_fingerprint import FingerprintCache
from relive.record.provenance.data_fingerprint import fingerprint_file
if os.getuid() == 0:
    os.setuid(65534)
with FingerprintCache(Path(sys.argv[1]) / "fingerprints.sqlite") as cache:
    print(fingerprint_file(Path(sys.argv[2]), cache).digest)
"""


def test_a_read_only_home_does_no_harm() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home, file = Path(folder) / "home", old(Path(folder) / "a")
        home.mkdir()
        with FingerprintCache(home / "fingerprints.sqlite") as cache:
            expected = fingerprint_file(file, cache).digest
        os.chmod(folder, 0o755)
        os.chmod(home, 0o555)
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", READ_ONLY, str(home), str(file)]
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        os.chmod(home, 0o755)

    assert (ran.stdout.strip(), ran.stderr) == (expected, "")


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_threads_and_forked_children_may_share_a_cache(tmp_path: Path, cache: FingerprintCache) -> None:
    files = [old(tmp_path / f"{n}", bytes([n])) for n in range(20)]
    wrong: list[Path] = []

    def check() -> None:
        wrong.extend(file for file in files if fingerprint_file(file, cache) != fingerprint_file(file))

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child = os.fork()
    if child == 0:
        check()
        os._exit(1 if wrong else 0)

    assert os.waitpid(child, 0)[1] == 0
    assert wrong == []


def test_reads_of_relive_are_no_inputs_of_the_run(tmp_path: Path) -> None:
    old(tmp_path / "data" / "a")
    watch = InputWatch(root=str(tmp_path), home=str(tmp_path / "home"))
    watch.start()
    fingerprint(tmp_path / "data")
    fingerprint(tmp_path / "data" / "a")
    watch.stop()

    assert watch.seen() == []


# Folders


def test_the_fingerprint_of_a_folder_depends_on_names_and_contents_without_junk(
    tmp_path: Path, cache: FingerprintCache
) -> None:
    one, two = tmp_path / "one", tmp_path / "elsewhere" / "two"
    for name in ("b.csv", "a/x.csv", "a.csv"):
        old(one / name, name.encode())
    shutil.copytree(one, two)
    for junk in (".DS_Store", "__pycache__/x.pyc", "a/.ipynb_checkpoints/x"):
        old(two / junk)

    found = fingerprint(one, cache=cache)
    assert found == fingerprint(two)
    assert (found.kind, found.detail, found.size_bytes) == ("folder", {"files": 3}, 17)
    (two / "a.csv").rename(two / "c.csv")
    assert fingerprint(two).digest != found.digest
    (two / "c.csv").rename(two / "a.csv")
    (two / "a.csv").write_bytes(b"a.CSV")
    assert fingerprint(two).digest != found.digest


def test_links_are_followed_but_never_in_circles(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    old(folder / "sub" / "a")
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "self").symlink_to("self")
    (folder / "broken").symlink_to("nowhere")
    (folder / "linked").symlink_to(old(tmp_path / "outside"))
    os.mkfifo(folder / "pipe")

    found = fingerprint_folder(folder)
    assert found.detail == {"files": 4}  # sub/a, linked, and the two broken links by name only


def test_a_large_folder_is_sampled_like_one_long_file(tmp_path: Path) -> None:
    for n in range(5):
        old(tmp_path / "data" / f"{n}", bytes([n]) * 50_000)

    whole, sampled = fingerprint(tmp_path / "data"), fingerprint_folder(tmp_path / "data", full_bytes=100_000)
    assert sampled.detail == {"files": 5, "sampled": True}
    assert sampled.digest != whole.digest
    old(tmp_path / "data" / "3", b"!" * 50_000)
    assert fingerprint_folder(tmp_path / "data", full_bytes=100_000).digest != sampled.digest


# Elsewhere


def test_an_url_is_identified_by_its_etag_and_opaque_without() -> None:
    url = "https://me:abc@host/data.csv?id=1"
    known, opaque = fingerprint(url, etag="v1"), fingerprint(url)

    assert (known.kind, opaque.kind) == ("url", "opaque")
    assert known.digest != fingerprint(url, etag="v2").digest
    assert opaque.digest != fingerprint("https://host/data.csv?id=2").digest
    assert "etag=" in str(opaque.detail["remedy"])
    assert "abc" not in repr(known) + repr(opaque)


def test_signing_an_url_anew_changes_nothing() -> None:
    signed = "https://host/x?id=1&X-Amz-Date={0}&X-Amz-Signature={0}&Expires={0}&token={0}"

    assert fingerprint(signed.format("abc"), etag="e") == fingerprint(signed.format("def"), etag="e")


@pytest.mark.parametrize("missing", ["nowhere.csv", Path("nowhere.csv"), "", "a\0b", "x" * 5000, "file:///nowhere"])
def test_a_path_that_does_not_exist_is_an_error_with_a_remedy(missing: Any) -> None:
    with pytest.raises(NotFound, match=r"give an existing path"):
        fingerprint(missing)


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert fingerprint(tmp_path / "pipe").kind == "opaque"


# Objects


def test_arrays_tensors_and_frames_are_identified_by_content() -> None:
    np, pd, torch = (pytest.importorskip(name) for name in ("numpy", "pandas", "torch"))

    array = fingerprint(np.zeros((2, 3), "f4"))
    assert (array.kind, array.size_bytes) == ("array", 24)
    assert (array.detail["shape"], array.detail["dtype"]) == ([2, 3], "float32")
    assert array != fingerprint(np.ones((2, 3), "f4"))
    assert fingerprint(torch.zeros(3)).kind == "tensor"
    frame = fingerprint(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}))
    assert (frame.kind, frame.detail["columns"], frame.detail["length"]) == ("frame", ["a", "b"], 2)
    assert fingerprint({"train": np.zeros(3), "lr": 0.1, "more": [torch.zeros(2)]}).kind == "value"
    assert fingerprint(b"/etc").kind == "value"


def test_datasets_are_identified_by_their_state() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

    class Table(Dataset):  # type: ignore[type-arg]
        def __init__(self, rows: list[int], transform: Any = None) -> None:
            self.rows, self.transform = rows, transform

        def __len__(self) -> int:
            return len(self.rows)

        def __getitem__(self, index: int) -> int:
            return self.rows[index]

    tensors = TensorDataset(torch.arange(4), torch.zeros(4))
    different = [
        tensors, TensorDataset(torch.arange(4), torch.ones(4)), Subset(tensors, [0]), Subset(tensors, [1]), Table([1]),
        Table([2]), Table([1], transform=str.lower),
    ]  # fmt: skip
    found = [fingerprint(dataset) for dataset in different]
    assert {one.kind for one in found} == {"dataset"}
    assert len({one.digest for one in found}) == len(different)
    assert found[0] == fingerprint(TensorDataset(torch.arange(4), torch.zeros(4)))
    loader = fingerprint(DataLoader(tensors, batch_size=2))
    assert (loader.kind, loader.digest) == ("dataset", fingerprint(DataLoader(tensors)).digest)


def test_a_dataset_of_the_hub_is_identified_by_its_own_fingerprint() -> None:
    class Dataset:
        def __init__(self, mark: str) -> None:
            self._fingerprint = mark
            self.column_names = ["text"]

        def __len__(self) -> int:
            return 3

    Dataset.__module__, Dataset.__qualname__ = "datasets.arrow_dataset", "Dataset"

    assert (fingerprint(Dataset("a")).kind, fingerprint(Dataset("a")).detail["columns"]) == ("dataset", ["text"])
    assert fingerprint(Dataset("a")).digest == fingerprint(Dataset("a")).digest != fingerprint(Dataset("b")).digest


class Strange:
    shape = (None, "x")
    columns = property(lambda self: 1 / 0)
    nbytes = "many"

    def __len__(self) -> int:
        raise RuntimeError("no")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("never")


@pytest.mark.parametrize("thing", [Strange(), object, threading.Lock(), (n for n in range(3)), [Strange()], sys.stdin])
def test_a_strange_object_is_opaque_and_never_an_error(thing: Any) -> None:
    found = fingerprint_object(thing)

    assert found.kind in ("opaque", "value")
    assert found == fingerprint_object(thing)
    assert found.kind == "value" or "declare the file" in str(found.detail["remedy"])


@settings(max_examples=30)
@given(st.recursive(st.one_of(st.none(), st.integers(), st.text()), st.lists, max_leaves=8))
def test_any_plain_object_has_a_fingerprint(thing: Any) -> None:
    if not isinstance(thing, str):
        assert fingerprint(thing).kind == "value"


# The data version


def print_of(mark: str) -> Fingerprint:
    return Fingerprint("file", mark, 1)


def test_the_data_version_is_made_of_names_and_contents() -> None:
    a, b = print_of("a"), print_of("b")

    assert data_version({}, []) is None
    versions = [({"x": a}, []), ({"y": a}, []), ({"x": b}, []), ({}, [a]), ({}, [a, b]), ({"x": a}, [b])]
    assert len({data_version(declared, seen) for declared, seen in versions}) == len(versions)
    assert data_version({}, [a, b]) == data_version({}, [b, a, b])
    assert data_version({"x": a, "y": b}, []) == data_version({"y": b, "x": a}, [])
    assert data_version({"x": a}, [a]) == data_version({"x": a}, [])
    assert len(data_version({}, [a]) or "") == 16


def test_moving_the_data_leaves_its_version(tmp_path: Path) -> None:
    before = data_version({"train": fingerprint(old(tmp_path / "a"))}, [fingerprint(old(tmp_path / "b", b"seen"))])
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "d")

    assert data_version({"train": fingerprint(tmp_path / "c")}, [fingerprint(tmp_path / "d")]) == before
