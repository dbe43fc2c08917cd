"""Learns from the kernel which files a replay opens, also inside C libraries and in child processes (seccomp, Linux).

A filter has the kernel stop each thread that opens a file, until another process, the *monitor*, has answered.
A thread of the same process could not answer: whoever opens a file may hold the interpreter lock.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import gc
import json
import os
import platform
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from relive.record.provenance import FileTimes


class _Machine(NamedTuple):
    """The numbers of a processor's system calls; None where it has no such call."""

    architecture: int
    seccomp: int
    openat: int
    openat2: int
    open: int | None
    creat: int | None


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 317, 257, 437, 2, 85),
    "aarch64": _Machine(0xC00000B7, 277, 56, 437, None, None),
}
_NO_NEW_PRIVILEGES, _SET_TRACER = 38, 0x59616D61
_SET_FILTER, _NEW_LISTENER, _UNINTERRUPTED = 1, 1 << 3, 1 << 5
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND, _ADD_FILE, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40182103, 0x40082104
_CONTINUE, _ADD_AND_SEND, _WAKE_AT_ONCE = 1, 1 << 1, 1
_REQUEST_BYTES = 80
_HERE = -100  # the folder that relative paths begin in
_MAX_PATH = 4096
_FLAGS = 0x7FFFFFFF  # the upper half of the argument means nothing
_CREATING = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


class OpenedFile(NamedTuple):
    """A file that was opened: its path, how, and what it was like right before."""

    path: str
    flags: int
    times: FileTimes


@dataclass(frozen=True, slots=True)
class OpenRules:
    """What the monitor does about a file. It calls these functions in its own process."""

    watched_path: Callable[[str], str]  # the real path of a file that matters; empty for any other
    path_for: Callable[[str, int], str]  # the file to open instead, given the flags; the path itself if none
    times: Callable[[str], FileTimes]
    is_beyond_doubt: Callable[[str, FileTimes], bool]  # whether reading it says nothing


class OpenMonitor:
    """The opened files that the monitor has noted; created by `start_monitor`."""

    def __init__(self, notes: int) -> None:
        self._notes = notes
        self._read_bytes = 0
        self._rest = b""

    def take(self) -> list[OpenedFile]:
        """Returns what was opened since the last call; whatever this thread has opened is there."""
        if os.fstat(self._notes).st_size == self._read_bytes:
            return []
        data = b""
        while part := os.pread(self._notes, 1 << 20, self._read_bytes):
            self._read_bytes += len(part)
            data += part
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = []
        for line in lines:
            path, flags, times = json.loads(line)
            found.append(OpenedFile(os.fsdecode(bytes.fromhex(path)), flags, tuple(times)))
        return found


def start_monitor(rules: OpenRules) -> OpenMonitor | None:
    """Starts to monitor this process, which must have one thread only, and its children.

    Returns None where the kernel can't: on systems other than Linux, on other processors, and where it is not allowed.
    """
    machine = _MACHINES.get(platform.machine())
    if not sys.platform.startswith("linux") or machine is None:
        return None
    notes = os.memfd_create("relive-opened")
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _run_monitor(theirs, notes, rules, machine)
    theirs.close()
    with ours:
        libc = ctypes.CDLL(None, use_errno=True)
        _allow_tracing(libc, pid)
        os.register_at_fork(after_in_child=lambda: _allow_tracing(libc, pid))
        listener = _install_filter(libc, machine)
        if listener is None:
            os.close(notes)
            ours.close()  # the monitor ends
            os.waitpid(pid, 0)
            return None
        socket.send_fds(ours, [b"!"], [listener])
        os.close(listener)
        ours.recv(1)  # it is ready
    return OpenMonitor(notes)


def _allow_tracing(libc: ctypes.CDLL, pid: int) -> None:
    """Lets the monitor read paths in the memory of this process; some systems allow that to parents only."""
    libc.prctl(_SET_TRACER, pid, 0, 0, 0)


def _install_filter(libc: ctypes.CDLL, machine: _Machine) -> int | None:
    """Has the kernel ask before each file is opened; returns the descriptor at which it asks."""
    calls = [number for number in (machine.openat, machine.openat2, machine.open, machine.creat) if number is not None]
    program = [
        (_LOAD, 0, 0, 4), (_JUMP_IF_EQUAL, 1, 0, machine.architecture), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 0),
        *((_JUMP_IF_EQUAL, len(calls) - at, 0, number) for at, number in enumerate(calls)),
        (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY),
    ]  # fmt: skip
    code = b"".join(struct.pack("HBBI", *one) for one in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    given = _Filter(len(program), ctypes.cast(buffer, ctypes.c_void_p))
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    for flags in (_NEW_LISTENER | _UNINTERRUPTED, _NEW_LISTENER):  # older kernels lack the second
        listener = int(libc.syscall(machine.seccomp, _SET_FILTER, flags, ctypes.byref(given)))
        if listener >= 0:
            return listener
    return None


# --- in the monitor's process -----------------------------------------------------------------------------------------


def _run_monitor(connection: socket.socket, notes: int, rules: OpenRules, machine: _Machine) -> NoReturn:
    """Answers until every monitored process has ended."""
    try:
        gc.disable()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        _close_others({connection.fileno(), notes})
        _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4))
        if ancillary:
            listener = array.array("i", ancillary[0][2])[0]
            connection.send(b"!")
            connection.close()
            _Monitor(listener, notes, rules, machine).serve()
    finally:
        os._exit(0)


def _close_others(kept: set[int]) -> None:
    """Closes what belongs to the worker: locks, sockets, pipes. Error messages go where the worker's go."""
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


class _Monitor:
    """Answers the questions of the kernel."""

    def __init__(self, listener: int, notes: int, rules: OpenRules, machine: _Machine) -> None:
        self._listener = listener
        self._notes = notes
        self._rules = rules
        self._machine = machine
        with contextlib.suppress(OSError):  # newer kernels switch to the monitor without going through the scheduler
            fcntl.ioctl(listener, _SET_FLAGS, _WAKE_AT_ONCE)

    def serve(self) -> None:
        waiting = select.poll()
        waiting.register(self._listener, select.POLLIN)
        while True:
            ((_, events),) = waiting.poll()
            if not events & select.POLLIN:
                return  # nobody is monitored any more
            request = bytearray(_REQUEST_BYTES)
            try:
                fcntl.ioctl(self._listener, _RECEIVE, request)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR):
                    continue  # the thread was killed meanwhile
                raise
            self._answer(request)

    def _answer(self, request: bytearray) -> None:
        number, pid = struct.unpack_from("QI", request)
        call, *arguments = struct.unpack_from("i4x8x6Q", request, 16)
        try:
            path, flags, mode = self._arguments(pid, call, arguments)
            real = self._rules.watched_path(path)
        except (OSError, ValueError):
            real = ""  # it can't be looked at, or is no path at all
        if not real or flags & os.O_PATH:  # with the second, nothing is read
            self._send(_SEND, struct.pack("QqiI", number, 0, 0, _CONTINUE))
            return
        try:
            opened = self._look_at(real, flags, mode)
        except OSError as error:
            self._send(_SEND, struct.pack("QqiI", number, 0, -(error.errno or errno.EIO), 0))
            return
        if opened is None:
            self._send(_SEND, struct.pack("QqiI", number, 0, 0, _CONTINUE))
            return
        self._send(_ADD_FILE, struct.pack("QIIII", number, _ADD_AND_SEND, opened, 0, flags & os.O_CLOEXEC))
        os.close(opened)

    def _send(self, request: int, answer: bytes) -> None:
        with contextlib.suppress(OSError):  # the thread was killed meanwhile
            fcntl.ioctl(self._listener, request, answer)

    def _arguments(self, pid: int, call: int, arguments: list[int]) -> tuple[str, int, int]:
        """Returns the path, the flags and the mode that a thread gives to the kernel."""
        machine = self._machine
        if call in (machine.open, machine.creat):
            path = self._path(pid, _HERE, arguments[0])
            return (path, arguments[1], arguments[2]) if call == machine.open else (path, _CREATING, arguments[1])
        path = self._path(pid, ctypes.c_int(arguments[0]).value, arguments[1])
        if call == machine.openat2:
            flags, mode = struct.unpack("QQ", _memory_of(pid, arguments[2], 16))
            return path, flags, mode
        return path, arguments[2], arguments[3]

    def _path(self, pid: int, folder: int, address: int) -> str:
        path = os.fsdecode(_memory_of(pid, address, _MAX_PATH).partition(b"\0")[0])
        if os.path.isabs(path):
            return path
        start = os.readlink(f"/proc/{pid}/cwd" if folder == _HERE else f"/proc/{pid}/fd/{folder}")
        return os.path.join(start, path)

    def _look_at(self, real: str, flags: int, mode: int) -> int | None:
        """Notes a file that is about to be opened; returns a descriptor if another one is opened in its place."""
        rules = self._rules
        times = rules.times(real)
        if flags & WRITE_FLAGS or not rules.is_beyond_doubt(real, times):
            note = json.dumps([os.fsencode(real).hex(), flags & _FLAGS, list(times)])
            os.write(self._notes, note.encode() + b"\n")
        instead = rules.path_for(real, flags)
        return os.open(instead, flags & _FLAGS, mode & 0o7777) if instead != real else None


def _memory_of(pid: int, address: int, size_bytes: int) -> bytes:
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        return os.pread(memory, size_bytes, address)
    finally:
        os.close(memory)
