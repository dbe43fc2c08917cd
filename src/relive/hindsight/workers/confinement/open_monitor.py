"""Learns from the kernel which files a replay opens, also inside C libraries and in child processes (seccomp, Linux).

A filter has the kernel stop each thread that opens, renames, removes or truncates a file, until another process, the
*monitor*, has answered. A thread of the same process could not: the one that waits may hold the interpreter lock.
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
import shutil
import signal
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from relive.record.provenance import FileTimes


class _Machine(NamedTuple):
    """A processor: its number, that of the system call `seccomp`, and those of the calls that are stopped."""

    architecture: int
    seccomp: int
    calls: dict[int, str]


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 317, {
        257: "openat", 437: "openat2", 2: "open", 85: "creat", 82: "rename", 264: "renameat", 316: "renameat2",
        87: "unlink", 263: "unlinkat", 76: "truncate", 84: "rmdir", 83: "mkdir", 258: "mkdirat",
    }),
    "aarch64": _Machine(0xC00000B7, 277, {
        56: "openat", 437: "openat2", 38: "renameat", 276: "renameat2", 35: "unlinkat", 45: "truncate", 34: "mkdirat",
    }),
}  # fmt: skip
_NO_NEW_PRIVILEGES, _SET_TRACER = 38, 0x59616D61
_SET_FILTER, _NEW_LISTENER, _UNINTERRUPTED = 1, 1 << 3, 1 << 5
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND, _ADD_FILE, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40182103, 0x40082104
_CONTINUE, _ADD_AND_SEND, _WAKE_AT_ONCE = 1, 1 << 1, 1
_REQUEST_BYTES = 80
_REMOVE_FOLDER = 0x200
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
    is_left_alone: Callable[[str], bool]  # whether a file must not be changed, and has no copy
    before_write: Callable[[str, int], None]  # called with a link that is opened for writing, and the flags
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
    calls = list(machine.calls)
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


class _Done(NamedTuple):
    """What the monitor has done in place of a thread: opened a file, or something else."""

    descriptor: int = -1
    flags: int = 0


class _Monitor:
    """Answers the questions of the kernel."""

    def __init__(self, listener: int, notes: int, rules: OpenRules, machine: _Machine) -> None:
        self._listener = listener
        self._notes = notes
        self._rules = rules
        self._machine = machine
        self._removed: set[str] = set()  # folders that seem to be gone
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
        name = self._machine.calls[call]
        try:
            done = self._handle(pid, name, arguments)
        except OSError as error:
            self._send(_SEND, struct.pack("QqiI", number, 0, -(error.errno or errno.EIO), 0))
            return
        if done is None:
            self._send(_SEND, struct.pack("QqiI", number, 0, 0, _CONTINUE))
        elif "open" in name or name == "creat":
            is_closed = done.flags & os.O_CLOEXEC
            self._send(_ADD_FILE, struct.pack("QIIII", number, _ADD_AND_SEND, done.descriptor, 0, is_closed))
            os.close(done.descriptor)
        else:
            self._send(_SEND, struct.pack("QqiI", number, 0, 0, 0))

    def _handle(self, pid: int, name: str, arguments: list[int]) -> _Done | None:
        """Does what a thread wants to have done, in another way; returns None if it may do so itself."""
        try:
            if "rename" in name:
                starts = (_HERE, _HERE) if name == "rename" else (_signed(arguments[0]), _signed(arguments[2]))
                at = (0, 1) if name == "rename" else (1, 3)
                paths = [self._path(pid, start, arguments[one]) for start, one in zip(starts, at, strict=True)]
            elif name in ("unlink", "truncate", "rmdir", "mkdir"):
                paths = [self._path(pid, _HERE, arguments[0])]
            elif name in ("unlinkat", "mkdirat"):
                paths = [self._path(pid, _signed(arguments[0]), arguments[1])]
            else:
                path, flags, mode = self._open_arguments(pid, name, arguments)
                if flags & WRITE_FLAGS and os.path.islink(path):
                    self._rules.before_write(path, flags)
                paths = [path]
            watched = [self._rules.watched_path(path) for path in paths]
        except (OSError, ValueError):
            return None  # it can't be looked at, or is no path at all
        if not any(watched):
            return None
        if "rename" in name:
            return self._rename(paths, watched)
        if name == "rmdir" or (name == "unlinkat" and arguments[2] & _REMOVE_FOLDER):
            return self._remove_folder(watched[0])
        if "unlink" in name:
            return self._unlink(watched[0])
        if "mkdir" in name:
            return self._make_folder(watched[0])
        if name == "truncate":
            return self._truncate(watched[0], arguments[1])
        return None if flags & os.O_PATH else self._open(watched[0], flags, mode)

    def _send(self, request: int, answer: bytes) -> None:
        with contextlib.suppress(OSError):  # the thread was killed meanwhile
            fcntl.ioctl(self._listener, request, answer)

    def _open_arguments(self, pid: int, name: str, arguments: list[int]) -> tuple[str, int, int]:
        """Returns the path, the flags and the mode that a thread gives to the kernel."""
        if name in ("open", "creat"):
            path = self._path(pid, _HERE, arguments[0])
            return (path, arguments[1], arguments[2]) if name == "open" else (path, _CREATING, arguments[1])
        path = self._path(pid, _signed(arguments[0]), arguments[1])
        if name == "openat2":
            flags, mode = struct.unpack("QQ", _memory_of(pid, arguments[2], 16))
            return path, flags, mode
        return path, arguments[2], arguments[3]

    def _path(self, pid: int, folder: int, address: int) -> str:
        path = os.fsdecode(_memory_of(pid, address, _MAX_PATH).partition(b"\0")[0])
        if os.path.isabs(path):
            return path
        start = os.readlink(f"/proc/{pid}/cwd" if folder == _HERE else f"/proc/{pid}/fd/{folder}")
        return os.path.join(start, path)

    def _open(self, real: str, flags: int, mode: int) -> _Done | None:
        """Notes a file that is about to be opened, and opens its copy if it has one."""
        self._note(real, flags)
        instead = self._rules.path_for(real, flags)
        if instead == real:
            return None
        return _Done(os.open(instead, flags & _FLAGS, mode & 0o7777), flags)

    def _rename(self, paths: list[str], watched: list[str]) -> _Done | None:
        """Renames to and from copies: libraries write a temporary file first, which then gets the final name."""
        source, target = watched
        instead = [
            self._rules.path_for(source, os.O_RDWR) if source else paths[0],
            self._rules.path_for(target, _CREATING) if target else paths[1],
        ]
        if target:
            self._note(target, _CREATING)
        if instead == [source or paths[0], target or paths[1]]:
            return None
        shutil.move(instead[0], instead[1])
        return _Done()

    def _unlink(self, real: str) -> _Done | None:
        """Removes a copy. A file that must stay gets one that does not exist, so it seems to be gone."""
        is_left_alone = self._rules.is_left_alone(real)
        instead = self._rules.path_for(real, _CREATING if is_left_alone else os.O_RDONLY)
        if instead == real:
            return None
        if not is_left_alone:
            os.unlink(instead)
        return _Done()

    def _remove_folder(self, real: str) -> _Done | None:
        """Removes a folder, or has it seem to be gone if all that is left in it are files that must stay."""
        with os.scandir(real) as entries:
            left = [entry.path for entry in entries]
        if not left or not all(path in self._removed or self._is_gone(path) for path in left):
            return None
        self._removed.add(real)
        return _Done()

    def _is_gone(self, path: str) -> bool:
        instead = self._rules.path_for(path, os.O_RDONLY)
        return instead != path and not os.path.lexists(instead)

    def _make_folder(self, real: str) -> _Done | None:
        if real not in self._removed:
            if not os.path.lexists(real):
                self._note(real, _CREATING)  # also if a child process makes it
            return None
        self._removed.remove(real)
        return _Done()

    def _truncate(self, real: str, size_bytes: int) -> _Done | None:
        self._note(real, os.O_WRONLY)
        instead = self._rules.path_for(real, os.O_WRONLY)
        if instead == real:
            return None
        os.truncate(instead, size_bytes)
        return _Done()

    def _note(self, real: str, flags: int) -> None:
        times = self._rules.times(real)
        if flags & WRITE_FLAGS or not self._rules.is_beyond_doubt(real, times):
            note = json.dumps([os.fsencode(real).hex(), flags & _FLAGS, list(times)])
            os.write(self._notes, note.encode() + b"\n")


def _signed(number: int) -> int:
    return ctypes.c_int(number & 0xFFFFFFFF).value


def _memory_of(pid: int, address: int, size_bytes: int) -> bytes:
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        return os.pread(memory, size_bytes, address)
    finally:
        os.close(memory)
