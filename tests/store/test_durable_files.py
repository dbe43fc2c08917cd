"""Laws of durable writes: the old content or the new one, never a mixture, and nothing left over."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from relive.errors import Damaged
from relive.store.durable_files import atomic_write, open_atomically, publish, read_sealed, write_sealed


def test_a_file_is_replaced_whole(tmp_path: Path):
    target = tmp_path / "costs.json"
    atomic_write(target, b"old")
    atomic_write(target, b"new")

    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["costs.json"]


def test_an_error_while_writing_leaves_the_old_content_and_no_leftover(tmp_path: Path):
    target = tmp_path / "tokens.json"
    atomic_write(target, b"old")

    def interrupted() -> None:
        with open_atomically(target) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["tokens.json"]


def test_writers_of_one_file_never_share_a_temporary_file(tmp_path: Path):
    target, whole = tmp_path / "check.json", [bytes([letter]) * 200_000 for letter in b"abcdef"]
    threads = [
        threading.Thread(target=lambda data=data: [atomic_write(target, data, durable=False) for _ in range(20)])
        for data in whole
    ]
    for thread in threads:
        thread.start()
    seen = set()
    while any(thread.is_alive() for thread in threads):
        if target.exists():
            seen.add(target.read_bytes())
    for thread in threads:
        thread.join()

    assert seen <= set(whole)
    assert os.listdir(tmp_path) == ["check.json"]


def test_permissions_hold_from_the_first_byte_on(tmp_path: Path):
    with open_atomically(tmp_path / "tokens.json", permissions=0o600):
        (partial,) = tmp_path.iterdir()
        assert partial.stat().st_mode & 0o077 == 0

    assert (tmp_path / "tokens.json").stat().st_mode & 0o077 == 0


def test_a_kill_leaves_the_old_content(tmp_path: Path):
    target = tmp_path / "index"
    atomic_write(target, b"old")
    code = f"""
import os, signal
from pathlib import Path
from relive.store.durable_files import open_atomically
with open_atomically(Path({str(target)!r})) as file:
    file.write(b"new")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)

    assert done.returncode == -9
    assert target.read_bytes() == b"old"


def test_bytes_and_names_are_forced_to_disk_before_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    steps: list[str] = []
    real_fsync, real_rename = os.fsync, Path.rename

    def fsync(descriptor: int) -> None:
        steps.append("fsync " + os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")).split(".")[-1])
        real_fsync(descriptor)

    def rename(self: Path, target: Path) -> Path:
        steps.append("rename")
        return real_rename(self, target)

    monkeypatch.setattr("os.fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    atomic_write(tmp_path / "a", b"1")
    (tmp_path / "b.partial").write_bytes(b"2")
    publish(tmp_path / "b.partial", tmp_path / "b")

    assert steps == ["fsync partial", "rename", f"fsync {tmp_path.name}"] * 2


def test_every_changed_byte_of_a_sealed_file_is_noticed(tmp_path: Path):
    path, content = tmp_path / "pin.json", b'{"files": {"train.py": "x = 1"}}'
    write_sealed(path, content)
    raw = path.read_bytes()
    assert read_sealed(path) == content

    for at in range(len(raw)):
        changed = bytearray(raw)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        # If its mark was changed, it looks like a file without a seal, whose content is no JSON.
        is_mark = len(content) <= at < len(content) + len(b"\n# xxh3 ")
        with pytest.raises(Damaged, match="checksum does not fit") if not is_mark else nullcontext():
            assert read_sealed(path) == bytes(changed)


def test_a_file_from_before_there_were_seals_is_read(tmp_path: Path):
    (tmp_path / "old.json").write_bytes(b'{"a": 1}\n')

    assert read_sealed(tmp_path / "old.json") == b'{"a": 1}\n'
