"""Well-known calls whose result depends on the moment or the machine, and which expressions it flows into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from relive.hindsight.analysis.reads.expression_reads import (
    FILE_ATTRIBUTES,
    WHOLE_STAT,
    Chain,
    ExpressionReads,
    FileScopes,
    Scope,
)
from relive.hindsight.analysis.reads.function_aliases import Aliases, called_functions
from relive.hindsight.analysis.reads.set_order import SET_ORDER
from relive.hindsight.analysis.reads.telling_arguments import DEVICE, MACHINE_FILE, NOW, UNSEEDED

CLOCK, ADDRESS, PROCESS, SYSTEM, NETWORK, DESCRIPTOR, CACHE, INPUT, PLACE, SIZE, FILE, ORDER, HIDDEN = (
    "reads the clock", "reads an address in memory", "reads a property of the process or the machine",
    "draws random numbers of the system", "reads the network", "reads a file descriptor, whose position is not kept",
    "reads the statistics of a cache, which are not kept", "reads the standard input, which is not kept",
    "reads a path, and a replay runs in a folder of its own",
    "reads the size of an object in memory, which depends on how it was filled",
    "reads a time or the number of a file, which a replay's own files don't have",
    "reads the order of a set, which differs between processes: use `relive run`, or set PYTHONHASHSEED for the run",
    "draws from the library's own generator, which no checkpoint can hold: give it a seed",
)  # fmt: skip
_TIME = (
    "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns thread_time "
    "thread_time_ns localtime gmtime ctime strftime asctime clock_gettime"
)
_MACHINE = (
    "os.getpid os.getppid os.getloadavg threading.get_ident threading.get_native_id socket.gethostname platform.node "
    "os.nice os.getpriority threading.active_count threading.enumerate inspect.stack sys._getframe gc.get_count "
    "gc.get_objects gc.get_stats sys.getallocatedblocks sys._current_frames os.cpu_count os.sched_getaffinity "
    "resource.getrusage torch.cuda.memory_allocated torch.cuda.max_memory_allocated torch.cuda.memory_reserved "
    "torch.cuda.max_memory_reserved torch.cuda.mem_get_info torch.cuda.utilization"
)
_CALLS = {
    **{f"time.{name}": CLOCK for name in _TIME.split()},
    **{f"datetime.{name}": CLOCK for name in "datetime.now datetime.utcnow datetime.today date.today".split()},
    **{f"pandas.Timestamp.{name}": CLOCK for name in "now utcnow today".split()},
    **dict.fromkeys(_MACHINE.split(), PROCESS),
    "timeit.default_timer": CLOCK, "os.times": CLOCK, "id": ADDRESS, "hash": ADDRESS,
    "os.urandom": SYSTEM, "uuid.uuid1": SYSTEM, "uuid.uuid4": SYSTEM, "random.SystemRandom": SYSTEM,
    **{f"os.{name}": DESCRIPTOR for name in "read readv pread lseek fstat fdopen".split()},
    "socket.socket": NETWORK, "socket.create_connection": NETWORK,
    **{f"os.path.{name}": FILE for name in "getmtime getctime getatime".split()},
    "input": INPUT, "fileinput.input": INPUT, "sys.getsizeof": SIZE, "sys.getrefcount": ADDRESS,
    "os.getcwd": PLACE, "os.getcwdb": PLACE, "os.path.abspath": PLACE, "os.path.realpath": PLACE,
    "pathlib.Path.cwd": PLACE, SET_ORDER: ORDER,
}  # fmt: skip
_MODULES = {
    "psutil": PROCESS, "tracemalloc": PROCESS, "pynvml": PROCESS, "secrets": SYSTEM, "requests": NETWORK,
    "httpx": NETWORK, "aiohttp": NETWORK, "urllib.request": NETWORK, "urllib3": NETWORK, "sys.stdin": INPUT,
}  # fmt: skip
_NAMES = {"sys.stdin": INPUT, "sys.modules": PROCESS, "__file__": PLACE}
_BY_ARGUMENTS = {NOW: CLOCK, MACHINE_FILE: PROCESS, DEVICE: SYSTEM, UNSEEDED: HIDDEN}
_METHODS = {
    **dict.fromkeys(FILE_ATTRIBUTES, FILE), "elapsed_time": CLOCK, "data_ptr": ADDRESS, "cache_info": CACHE,
    "__sizeof__": SIZE, "locked": PROCESS,
}  # fmt: skip
# Only the statement's own calls count: as keys of tables, and for finding files, they are ordinary.
_OWN_ONLY = frozenset(
    {"id", "hash", "__file__", "sys.modules", SET_ORDER, *(name for name, kind in _CALLS.items() if kind == PLACE)}
)
GROWING_METHODS = frozenset("add append appendleft extend insert put setdefault update".split())


def volatile_call(dotted: str, *, is_own: bool = False) -> str | None:
    """Returns what a call depends on, given its dotted name as imported; None if that is nothing special."""
    if dotted in _OWN_ONLY and not is_own:
        return None
    if dotted.startswith(WHOLE_STAT):
        return f"{FILE} ({dotted.removeprefix(WHOLE_STAT).lstrip('.')})"
    if dotted in _CALLS:
        return ORDER if dotted == SET_ORDER else f"{_CALLS[dotted]} ({dotted})"
    for mark, told in _BY_ARGUMENTS.items():
        if dotted.startswith(mark):
            return f"{told} ({dotted.removeprefix(mark)})"
    kind = next((kind for module, kind in _MODULES.items() if dotted.startswith(module + ".")), None)
    method = dotted.rpartition(".")[2] if "." in dotted else ""
    kind = kind or _METHODS.get(method)
    return f"{kind} ({dotted.lstrip('.')})" if kind else None


def volatile_name(dotted: str, *, is_own: bool = False) -> str | None:
    """Returns what a name depends on, such as `sys.stdin`; None if that is nothing special.

    A function of a module may be mentioned to be called under another name: `now = time.time`.
    """
    kind = _NAMES.get(dotted) or (_CALLS.get(dotted) if "." in dotted else None)
    kind = kind if is_own or dotted not in _OWN_ONLY else None
    return f"{kind} ({dotted})" if kind else None


@dataclass(slots=True)
class VolatileFlow:
    """Where the results of volatile calls flow: through assignments, attributes, returns and arguments.

    Conditions are not followed, nor are objects that are created with such a value: a logger with a time in its name
    is not itself a time.
    """

    files: Sequence[FileScopes]
    aliases: Aliases = field(default_factory=dict)
    _variables: dict[tuple[str, str, str], str] = field(default_factory=dict)  # file, scope, name → what it depends on
    _attributes: dict[str, str] = field(default_factory=dict)
    _functions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        while sum(self._spread(file, scope) for file in self.files for scope in file.scopes):
            pass  # until nothing is added: each round adds a variable, an attribute or a function

    def label(self, file: FileScopes, scope: Scope, reads: ExpressionReads, *, is_own: bool = False) -> str | None:
        """Returns what an expression in a scope depends on; None if that is nothing volatile."""
        found = (self._label_of_call(file, call, is_own) for call in sorted(reads.flowing_calls))
        labels = (label for label in found if label)
        return next(labels, None) or next(
            (label for chain in sorted(reads.flowing) if (label := self._label_of_chain(file, scope, chain, is_own))),
            None,
        )

    def holds(self, chain: Chain) -> bool:
        """Whether the object that a chain names holds a volatile value: its variable does, or its last attribute."""
        return chain[-1] in self._attributes or any(name == chain[0] for _, _, name in self._variables)

    def _label_of_call(self, file: FileScopes, call: str, is_own: bool) -> str | None:
        if label := volatile_call(file.resolve(call), is_own=is_own):
            return label
        called = called_functions(call, self.aliases)
        return next((self._functions[one] for one in called if one in self._functions), None)

    def _label_of_chain(self, file: FileScopes, scope: Scope, chain: Chain, is_own: bool) -> str | None:
        if named := volatile_name(file.resolve(".".join(chain[:2])), is_own=is_own):
            return named
        root = chain[0]
        for key in ((file.file, scope.name, root), (file.file, "", root)):
            if key in self._variables:
                return self._variables[key]
        found = next((self._attributes[part] for part in chain[1:] if part in self._attributes), None)
        # A property looks like an attribute; elsewhere than in the statement itself, too much has the name of one.
        return found or next((self._functions[part] for part in chain[1:] if is_own and part in self._functions), None)

    def _spread(self, file: FileScopes, scope: Scope) -> bool:
        is_more = False
        for targets, reads in scope.assigned:
            if label := self.label(file, scope, reads):
                is_more |= bool(sum(self._add_target(file, scope, target, label) for target in targets))
        for reads in scope.returned:
            if (label := self.label(file, scope, reads)) and scope.simple_name not in self._functions:
                self._functions[scope.simple_name] = label
                is_more = True
        for call in scope.calls:
            for at, reads in call.arguments.items():
                if label := self.label(file, scope, reads):
                    is_more |= self._add_argument(file, scope, call.function, at, label)
        return is_more

    def _add_target(self, file: FileScopes, scope: Scope, target: Chain, label: str) -> bool:
        if len(target) > 1:
            return _add(self._attributes, target[-1], label)
        owner = "" if target[0] in scope.global_names else scope.name
        return _add(self._variables, (file.file, owner, target[0]), label)

    def _add_argument(self, file: FileScopes, scope: Scope, function: Chain, at: int | str, label: str) -> bool:
        """Adds the parameter of a function of the project that is called by its plain name, or a container's owner."""
        if len(function) > 1:
            return function[-1] in GROWING_METHODS and self._add_target(file, scope, function[:-1], label)
        is_more = False
        for other in self.files:
            for callee in other.scopes:
                if callee.name == function[0]:
                    parameter = at if isinstance(at, str) else next(iter(callee.parameters[at : at + 1]), None)
                    if parameter in callee.parameters:
                        is_more |= _add(self._variables, (other.file, callee.name, str(parameter)), label)
        return is_more


def _add(labels: dict[Any, str], key: object, label: str) -> bool:
    is_new = key not in labels
    labels.setdefault(key, label)
    return is_new


def any_volatile(files: Iterable[FileScopes]) -> bool:
    """Whether any file makes a volatile call, or reads a volatile name, at all."""
    return any(
        any(volatile_call(file.resolve(call)) for call in file.all_calls)
        or any(volatile_name(file.resolve(".".join(chain[:2]))) for chain in _loads(file))
        for file in files
    )


def _loads(file: FileScopes) -> Iterable[Chain]:
    return (chain for scope in file.scopes for _, chain in scope.loads)
