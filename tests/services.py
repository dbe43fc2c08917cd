"""A real PostgreSQL and a real S3-compatible server, in temporary folders, as users that may do no harm."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PATIENCE_S = 60


def find_postgres() -> Path | None:
    """The folder of the newest PostgreSQL programs of this machine."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    return next((folder for folder in folders if (folder / "postgres").exists() and (folder / "initdb").exists()), None)


class Postgres:
    """A cluster on a unix socket, whose data nobody needs tomorrow. It refuses to be run by root, and so do we."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self._user = _harmless_user() if os.geteuid() == 0 else None
        if self._user:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        self._run("initdb", "-D", str(folder / "data"), "-U", "relive", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, *, password: str = "", database: str = "postgres") -> str:
        who = f"relive:{password}" if password else "relive"
        return f"postgresql://{who}@/{database}?host={self._folder}"

    def start(self) -> Postgres:
        options = ["-D", str(self._folder / "data"), "-k", str(self._folder), "-c", "listen_addresses="]
        options += ["-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=40"]
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._programs / "postgres", *options], stdout=log, stderr=log, **self._as_user()
            )
        _wait_for(self._answers, lambda: (self._folder / "log").read_text())
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)  # a fast shutdown: clients are cut off
            self.process.wait(timeout=PATIENCE_S)
            self.process = None

    def _answers(self) -> bool:
        psycopg = pytest.importorskip("psycopg")
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *args: str) -> None:
        done = subprocess.run(
            [self._programs / program, *args], capture_output=True, text=True, check=False, **self._as_user()
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _as_user(self) -> dict[str, object]:
        where: dict[str, object] = {"cwd": self._folder, "env": {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}}
        who = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []} if self._user else {}
        return where | who


def _harmless_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("PostgreSQL does not run as root, and there is no other user to run it")


class Bucket:
    """SeaweedFS with one bucket. It can be stopped and started again."""

    NAME, KEY, SECRET = "relive-tests", "relive-key", "relive-secret-of-the-tests"

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._ports = _free_ports(8)
        credentials = [{"accessKey": self.KEY, "secretKey": self.SECRET}]
        allowed = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "tests", "credentials": credentials, "actions": allowed}
        (folder / "identities.json").write_text(json.dumps({"identities": [identity]}))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"s3://{self.NAME}"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._ports[0]}", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self.KEY, "AWS_SECRET_ACCESS_KEY": self.SECRET,
        }  # fmt: skip

    def start(self) -> Bucket:
        names = "s3.port filer.port s3.port.grpc filer.port.grpc master.port master.port.grpc volume.port".split()
        ports = [f"-{name}={port}" for name, port in zip([*names, "volume.port.grpc"], self._ports, strict=True)]
        where = [f"-dir={self._folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        small = ["-volume.max=50", "-master.volumeSizeLimitMB=64", "-master.telemetry=false"]
        small += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # else one port for all who test on this machine
        served = ["-filer", "-s3", f"-s3.config={self._folder / 'identities.json'}"]
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._program, "server", *where, *ports, *small, *served], stdout=log, stderr=log, cwd=self._folder
            )
        _wait_for(self._answers, lambda: (self._folder / "log").read_text())
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()  # asked politely, it takes its time
            self.process.wait(timeout=PATIENCE_S)
            self.process = None

    def _answers(self) -> bool:
        """Its parts come up one after the other: it is there when something can be put, which makes the bucket."""
        import obstore
        from obstore.store import S3Store

        told = {name.removeprefix("AWS_").lower(): value for name, value in self.environ.items()}
        endpoint = told.pop("endpoint_url")
        store = S3Store(
            self.NAME, endpoint=endpoint, client_options={"allow_http": True}, retry_config={"max_retries": 0}, **told
        )
        try:
            obstore.put(store, "is-there", b"yes")
        except (obstore.exceptions.BaseError, OSError):
            return False
        return True


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A short path, since that of a socket must be, and one that another user can reach."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _wait_for(is_there: Callable[[], bool], told: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_there():
        if time.monotonic() > deadline:
            pytest.fail(f"it did not start: {told()[-2000:]}")
        time.sleep(0.05)
