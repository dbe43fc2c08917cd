"""The walls of the map: imports look down and enter by the door, modules stay small, global state has one address."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"

ROWS = {
    "__main__": 10,
    "cli": 9,
    "server": 9,
    "__init__": 8,  # the face: it may name what the api puts together, and the command line may read it
    "auto": 8,
    "api": 7,
    "memo": 6,
    "hindsight": 6,
    "integrations": 6,
    "handsfree": 5,
    "record": 4,
    "checkpoint": 3,
    "query": 2,
    "store": 1,
    "transplant": 1,  # text in, text out: it knows neither runs nor disks
    "instrument": 1,  # the same: source in, trees out
    "model": 0,
    "errors": 0,
    "settings": 0,
    "hashing": 0,
    "lazy_imports": 0,
    "installation": 0,
    "machine": 0,
    "syntax_tree": 0,
}
HIGHEST_FOR_SERVER = ROWS["query"]
# Neighbours in a row don't know each other, but for these.
NEIGHBOURS = {
    ("cli", "server"),  # `relive serve` starts it
    ("hashing", "lazy_imports"),
    ("hashing", "machine"),  # it hashes with as many threads as there are processors
    ("integrations", "memo"),  # Parsl's memoizer is ours behind Parsl's methods
    ("hashing", "errors"),  # whoever refuses a value must be able to raise
    ("model", "lazy_imports"),
    ("model", "errors"),
    ("settings", "errors"),
}
ADDRESS_OF_GLOBAL_STATE = "relive.record.session"
NAMES_WITHOUT_REASON = {"utils", "util", "misc", "common", "helpers", "helper"}
MODULE_LINES = 400
FUNCTION_LINES = 60
PUBLIC_DOORS = {"__init__", "memo", "cli"}  # their names are for users, too
FOLDER_MODULES = 13  # "about a dozen", besides the door
LONGEST_CHAIN = 16  # modules, along imports at module level
# What a framework calls the same thing has one name in all files that speak to frameworks.
FRAMEWORK_FILES = re.compile(r"relive\.integrations\.|.*_loop$")
TOO_HEAVY_TO_IMPORT = ("numpy", "pandas", "duckdb", "torch", "rich", "click")


# --- reading the sources ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Module:
    name: str  # dotted; a package has the name of its folder
    is_package: bool
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    @property
    def room(self) -> str:
        return room_of(self.name)

    @property
    def folder(self) -> str:
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @cached_property
    def bound_names(self) -> set[str]:
        """What the module itself calls by a name at its top level."""
        names: set[str] = set()
        # A door that loads its modules when they are needed names them under TYPE_CHECKING.
        for node in (n for top in self.tree.body for n in (top.body if isinstance(top, ast.If) else [top])):
            if isinstance(node, ast.ImportFrom):
                names |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        return names

    @cached_property
    def offered(self) -> dict[str, str]:
        """What a door offers: names with the module that each comes from."""
        listed = [top for top in self.tree.body if isinstance(top, ast.ImportFrom)]
        listed += [
            n for top in self.tree.body if isinstance(top, ast.If) for n in top.body if isinstance(n, ast.ImportFrom)
        ]
        ours = [
            node
            for node in listed
            if (node.module or "").startswith("relive.") and node.module != "relive.lazy_imports"
        ]
        return {alias.name: node.module or "" for node in ours for alias in node.names}

    @cached_property
    def eager_names(self) -> set[str]:
        return {a.name for top in self.tree.body if isinstance(top, ast.ImportFrom) for a in top.names}

    @cached_property
    def defined_names(self) -> set[str]:
        stored = {node.id for node in self.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        return stored | {
            n.name for n in self.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }


Modules = Mapping[str, Module]


@dataclass(frozen=True)
class Import:
    source: Module
    target: str  # the dotted name of one of our modules
    line: int

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line} imports {self.target}"


def room_of(name: str) -> str:
    return name.split(".")[1] if "." in name else "__init__"


def parse(texts: Mapping[str, str]) -> Modules:
    """Modules by dotted name, from texts by path (`relive/store/__init__.py`)."""
    modules = {}
    for path, text in texts.items():
        parts = path.removesuffix(".py").split("/")
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = Module(name, is_package, text)
    return modules


def imports(module: Module, modules: Modules) -> Iterator[Import]:
    """Every import of ours, wherever it stands: at the top, in a function, under TYPE_CHECKING."""
    for node in module.nodes:
        for target in _targets(node, module, modules):
            if target.split(".")[0] == "relive":
                yield Import(module, target, getattr(node, "lineno", 0))


def _targets(node: ast.AST, module: Module, modules: Modules) -> list[str]:
    match node:
        case ast.Import(names):
            return [alias.name for alias in names]
        case ast.ImportFrom(names=names):
            base = _base(node, module)
            return [_module_or_name(base, alias.name, modules, inside=_is_around(base, module)) for alias in names]
        case ast.Call(
            func=ast.Name("import_module") | ast.Attribute(attr="import_module"), args=[ast.Constant(name), *_]
        ):
            return [str(name)]
    return []


def _base(node: ast.ImportFrom, module: Module) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    above = node.level - 1 if module.is_package else node.level
    return ".".join(parts[: len(parts) - above] + ([node.module] if node.module else []))


def _module_or_name(base: str, name: str, modules: Modules, *, inside: bool) -> str:
    """`from relive.store import journal` means the module, unless one stands outside and the door offers that name."""
    module = f"{base}.{name}"
    offered = not inside and base in modules and name in modules[base].bound_names
    return module if module in modules and not offered else base


# --- the checks: each returns the sentences that say what is wrong ---------------------------------------------------


def looks_down(modules: Modules) -> list[str]:
    wrong = []
    for module in modules.values():
        if module.room not in ROWS:
            wrong.append(f"{module.name}: the room {module.room!r} isn't on the map; draw it there and give it a row")
            continue
        wrong += [
            f"{found}: {module.room} must not know {room_of(found.target)}; imports only look down the map"
            for found in imports(module, modules)
            if not _may_know(module.room, room_of(found.target))
        ]
    return wrong


def _may_know(room: str, other: str) -> bool:
    if other not in ROWS:
        return True  # told about once, where that room is defined
    if room == other or (room, other) in NEIGHBOURS:
        return True
    return ROWS[other] < ROWS[room] and not (room == "server" and ROWS[other] > HIGHEST_FOR_SERVER)


def enters_by_the_door(modules: Modules) -> list[str]:
    """A module imports siblings, and modules of the folders around it, directly; any other folder by its door."""
    return [
        f"{found}: enter a room by its door, from {_folder(found.target, modules)} import …"
        for module in modules.values()
        for found in imports(module, modules)
        if _folder(found.target, modules) != found.target and not _is_around(_folder(found.target, modules), module)
    ]


def _folder(target: str, modules: Modules) -> str:
    return modules[target].folder if target in modules else target.rpartition(".")[0]


def _is_around(folder: str, module: Module) -> bool:
    return f"{module.folder}.".startswith(f"{folder}.")


def stays_inside(modules: Modules) -> list[str]:
    return [
        f"{found}: inside a room, import the sibling module that defines the name, not the door"
        for module in modules.values()
        for found in imports(module, modules)
        if found.target in modules and modules[found.target].is_package and found.target != "relive"
        if found.target != module.name and _is_around(found.target, module)
    ]


def has_no_cycles(modules: Modules) -> list[str]:
    graph = {
        module.name: {found.target for found in imports(module, modules)} - {module.name} for module in modules.values()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = reversed(error.args[1])  # the sorter follows the arrows backwards
        return [f"{' → '.join(cycle)}: move what they share down into a module of its own"]
    return []


def has_a_charter(modules: Modules) -> list[str]:
    wrong = []
    for module in modules.values():
        first, *rest = (ast.get_docstring(module.tree) or "").split("\n")
        if not first.strip() or (rest and rest[0].strip()):
            wrong.append(f"{module.name}: begin with one line that says what this file knows that no other does")
    return wrong


def fits_in_one_sitting(modules: Modules) -> list[str]:
    wrong = []
    for module in modules.values():
        lines = len(module.text.splitlines())
        if lines > MODULE_LINES:
            wrong.append(f"{module.name} has {lines} lines (at most {MODULE_LINES}): split it by concern")
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    place = f"{module.name}:{node.lineno} {node.name}"
                    wrong.append(f"{place} has {lines} lines (at most {FUNCTION_LINES}): let names tell the story")
    return wrong


def keeps_global_state_in_one_place(modules: Modules) -> list[str]:
    return [
        f"{module.name}:{node.lineno} says `global`: global state lives in {ADDRESS_OF_GLOBAL_STATE} alone"
        for module in modules.values()
        for node in module.nodes
        if isinstance(node, ast.Global) and module.name != ADDRESS_OF_GLOBAL_STATE
    ]


def is_named_for_its_reason(modules: Modules) -> list[str]:
    return [
        f"{module.name}: {part!r} says nothing; a thing lives with its reason"
        for module in modules.values()
        for part in module.name.split(".")
        if part.lstrip("_") in NAMES_WITHOUT_REASON
    ]


def has_rooms_of_a_dozen(modules: Modules) -> list[str]:
    sizes = Counter(module.folder for module in modules.values() if not module.is_package)
    return [
        f"{folder} holds {count} modules (at most {FOLDER_MODULES}): give it inner rooms"
        for folder, count in sizes.items()
        if count > FOLDER_MODULES
    ]


def has_short_chains(modules: Modules) -> list[str]:
    """Import chains: at module level, with each name of a door taken as an import of the module that defines it."""
    longest: dict[str, tuple[str, ...]] = {}

    def chain(name: str) -> tuple[str, ...]:
        if name not in longest:
            longest[name] = (name,)  # a cycle is told by another check
            below = [chain(target) for target in _loaded_with(modules[name], modules)]
            longest[name] = (name, *max(below, key=len, default=()))
        return longest[name]

    found = max((chain(name) for name in modules), key=len, default=())
    if len(found) <= LONGEST_CHAIN:
        return []
    return [f"{' → '.join(found)}: {len(found)} modules (at most {LONGEST_CHAIN})"]


def _loaded_with(module: Module, modules: Modules) -> Iterator[str]:
    for node in _at_module_level(module.tree.body):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                target = _defining_module(_base(node, module), alias.name, modules)
                if target is not None and target != module.name:
                    yield target


def _at_module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            yield from _at_module_level([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _at_module_level(node.body)
        elif not isinstance(node, ast.If):
            yield node


def _defining_module(base: str, name: str, modules: Modules) -> str | None:
    if base not in modules:
        return None
    offered = modules[base].offered if modules[base].is_package else {}
    if name in offered and offered[name] != base:
        return _defining_module(offered[name], name, modules)
    return f"{base}.{name}" if f"{base}.{name}" in modules else base


def bears_a_name_of_its_own(modules: Modules) -> list[str]:
    """No two modules have one basename, no two classes one name; framework files are as the frameworks have them."""
    named: dict[str, list[str]] = defaultdict(list)
    for module in modules.values():
        basename = module.name.rpartition(".")[2]
        if not FRAMEWORK_FILES.match(module.name):
            named[f"module {basename}"] += [] if module.is_package else [module.name]
            for node in module.nodes:
                if isinstance(node, ast.ClassDef):
                    named[f"class {node.name}"].append(module.name)
    return [
        f"{name} is in {', '.join(places)}: one word, one thing" for name, places in named.items() if len(places) > 1
    ]


def is_a_noun(modules: Modules) -> list[str]:
    return [
        f"{module.name}: a module is a noun, what it is rather than what it does"
        for module in modules.values()
        if module.name.endswith("ing") and not module.is_package and not FRAMEWORK_FILES.match(module.name)
    ]


def has_honest_doors(modules: Modules) -> list[str]:
    """A door lists each name once, from the module that defines it, and only names that somebody outside uses."""
    used: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and not _is_around(_base(node, module), module):
                used[_base(node, module)] |= {alias.name for alias in node.names}
    wrong = []
    for door in (module for module in modules.values() if module.is_package and module.room not in PUBLIC_DOORS):
        for name, source in door.offered.items():
            if name not in used[door.name]:
                wrong.append(f"{door.name} offers {name}, which nobody outside imports: take it off the door")
            if source != door.name and name not in modules[source].defined_names:
                wrong.append(f"{door.name} offers {name} from {source}, which does not define it")
            if f"{door.name}.{name}" in modules and source != door.name and name not in door.eager_names:
                wrong.append(f"{door.name} offers {name}, the name of one of its modules: a submodule would hide it")
        if "__all__" in door.bound_names:
            wrong.append(f"{door.name} has an __all__: the imports are the list")
    return wrong


CHECKS = (
    looks_down,
    enters_by_the_door,
    stays_inside,
    has_no_cycles,
    has_a_charter,
    fits_in_one_sitting,
    keeps_global_state_in_one_place,
    is_named_for_its_reason,
    has_rooms_of_a_dozen,
    has_short_chains,
    bears_a_name_of_its_own,
    is_a_noun,
    has_honest_doors,
)


# --- the laws of this package ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def package() -> Modules:
    paths = sorted((SRC / "relive").rglob("*.py"))
    return parse({path.relative_to(SRC).as_posix(): path.read_text(encoding="utf-8") for path in paths})


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_module(check, package: Modules):
    wrong = check(package)

    assert not wrong, "\n" + "\n".join(wrong)


def test_the_package_is_there_to_be_checked(package: Modules):
    assert "relive" in package
    assert len(package) > 1


def test_importing_relive_imports_nothing_heavy():
    code = f"import sys, relive; print(*sorted({set(TOO_HEAVY_TO_IMPORT)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert not done.stdout.split(), f"import relive brings {done.stdout.strip()}: import them where they are used"


# --- the checks can fail ---------------------------------------------------------------------------------------------


def wrongs(check, texts: Mapping[str, str]) -> list[str]:
    """What a check says of a small package, given as texts by path (`store/journal`); doors that lack are put in."""
    package = {"relive/__init__.py": '"""Face."""'}
    for path, text in texts.items():
        room, slash, _ = path.partition("/")
        if slash:
            package.setdefault(f"relive/{room}/__init__.py", '"""Door."""')
        package[f"relive/{path}.py"] = text
    return check(parse(package))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("store/journal", "from relive.query import frame"),
        ("store/journal", "from relive import api"),
        ("store/journal", "import relive"),
        ("store/journal", "import relive.query"),
        ("store/journal", "from ..query import frame"),
        ("store/journal", "def f():\n    from relive.record import session"),
        ("store/journal", "if TYPE_CHECKING:\n    from relive.record import Recorder"),
        ("store/journal", "import importlib\nimportlib.import_module('relive.record')"),
        ("store/__init__", "from ..query import frame"),
        ("memo", "from relive.hindsight import plan"),
        ("server/app", "from relive.checkpoint import State"),
        ("server/app", "from relive.api import log"),
        ("server/app", "from relive import log"),
        ("model", "from relive.hashing import digest"),
        ("api", "from relive.cli import main"),
        ("__init__", "from relive.cli import main"),
        ("attic", "pass"),
    ],
)
def test_an_import_that_looks_up_or_sideways_is_found(path: str, text: str):
    assert len(wrongs(looks_down, {path: text})) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("__init__", "from relive.api import log"),
        ("__main__", "from relive.cli import main"),
        ("cli", "import relive\nfrom relive.server import serve\nfrom relive.api import log"),
        ("api", "from relive.memo import memo\nfrom relive.store import Journal"),
        ("server/app", "from relive.query import frame\nfrom relive.server.auth import Token"),
        ("store/journal", "import os\nfrom relive.errors import Damaged\nfrom .chunks import Chunks"),
        ("settings", "from relive.errors import ReliveError"),
    ],
)
def test_an_import_that_looks_down_is_fine(path: str, text: str):
    assert wrongs(looks_down, {path: text}) == []


@pytest.mark.parametrize(
    "text",
    [
        "from relive.store.journal import Journal",
        "import relive.store.journal",
        "from relive.store import journal",
        "def f():\n    from ..store.journal import Journal",
    ],
)
def test_a_room_entered_by_the_window_is_found(text: str):
    assert len(wrongs(enters_by_the_door, {"store/journal": "", "query/frame": text})) == 1


def test_a_name_that_the_door_offers_is_no_window():
    store = {"store/__init__": "from relive.store import kinds", "store/kinds": ""}
    user = {"store/journal": "from relive.store import kinds", "api": "from relive.store import kinds"}

    assert [wrong for check in CHECKS[:4] for wrong in wrongs(check, store | user)] == []


def test_a_room_that_goes_through_its_own_door_is_found():
    assert len(wrongs(stays_inside, {"store/journal": "from relive.store import Chunks"})) == 1
    assert wrongs(stays_inside, {"store/journal": "from relive.store import chunks", "store/chunks": ""}) == []
    assert wrongs(stays_inside, {"api": "from relive.store import Chunks"}) == []


def test_a_cycle_is_found_and_told_in_order():
    a, b, c = "from relive.store.b import x", "from .c import x", "def f():\n    from relive.store import a"
    (told,) = wrongs(has_no_cycles, {"store/a": a, "store/b": b, "store/c": c})

    names = [name.removeprefix("relive.store.") for name in told.split(":")[0].split(" → ")]
    assert "".join(names) in ("abca", "bcab", "cabc")
    assert wrongs(has_no_cycles, {"store/a": a, "store/b": b, "store/c": ""}) == []


@pytest.mark.parametrize("text", ["", "x = 1", '"""One line\nthat goes on."""'])
def test_a_module_without_a_one_line_charter_is_found(text: str):
    assert len(wrongs(has_a_charter, {"model": text})) == 1


def test_a_charter_may_be_followed_by_more():
    assert wrongs(has_a_charter, {"model": '"""What only this knows.\n\nAnd more of it.\n"""'}) == []


def test_what_is_too_long_is_found():
    module, function = "x = 1\n" * MODULE_LINES, "def f():\n" + "    pass\n" * (FUNCTION_LINES - 1)

    assert len(wrongs(fits_in_one_sitting, {"model": module + "x = 1\n"})) == 1
    assert len(wrongs(fits_in_one_sitting, {"model": function + "    pass\n"})) == 1
    assert wrongs(fits_in_one_sitting, {"model": module, "errors": function}) == []


def test_global_state_at_another_address_is_found():
    text = "def f():\n    global current\n    current = 1"

    assert len(wrongs(keeps_global_state_in_one_place, {"record/recorder": text})) == 1
    assert wrongs(keeps_global_state_in_one_place, {"record/session": text}) == []


def test_a_name_without_a_reason_is_found():
    assert len(wrongs(is_named_for_its_reason, {"store/_utils": "", "common": ""})) == 2
    assert wrongs(is_named_for_its_reason, {"store/journal": ""}) == []


def test_a_crowded_room_is_found():
    crowd = {f"store/m{number}": "" for number in range(FOLDER_MODULES)}

    assert wrongs(has_rooms_of_a_dozen, crowd) == []
    assert len(wrongs(has_rooms_of_a_dozen, crowd | {"store/one_more": ""})) == 1
    assert wrongs(has_rooms_of_a_dozen, crowd | {"store/inner/one_more": ""}) == []


def test_a_long_chain_is_found_through_doors_and_not_through_functions():
    chain = {f"store/m{n}": f"from relive.store.m{n + 1} import x" for n in range(LONGEST_CHAIN - 1)}
    last = f"store/m{LONGEST_CHAIN - 1}"
    door = {"query/__init__": "if TYPE_CHECKING:\n    from relive.query.far import y", "query/far": "y = 1"}

    assert wrongs(has_short_chains, chain | {last: "x = 1"} | door) == []
    (told,) = wrongs(has_short_chains, chain | {last: "from relive.query import y"} | door)
    assert told.split(":")[0].endswith("→ relive.query.far")
    assert wrongs(has_short_chains, chain | {last: "def f():\n    from relive.query import y"} | door) == []


def test_a_name_that_occurs_twice_is_found():
    twice = {"store/journal": "class Held: ...", "query/journal": "", "query/frame": "class Held: ..."}

    assert len(wrongs(bears_a_name_of_its_own, twice)) == 2
    assert (
        wrongs(bears_a_name_of_its_own, {"integrations/ray": "class C: ...", "integrations/optuna": "class C: ..."})
        == []
    )


def test_a_gerund_is_found():
    assert len(wrongs(is_a_noun, {"store/asking": "", "hashing/digests": ""})) == 1


@pytest.mark.parametrize(
    "door",
    [
        "from relive.store.journal import Journal\nfrom relive.store.journal import unused",
        "from relive.store.chunks import Journal",
        "from relive.store.journal import Journal\n__all__ = ['Journal']",
    ],
)
def test_a_door_that_says_too_much_is_found(door: str):
    rooms = {"store/journal": "class Journal: ...\nunused = 1", "store/chunks": ""}
    user = {"query/frame": "from relive.store import Journal"}

    assert len(wrongs(has_honest_doors, rooms | user | {"store/__init__": door})) == 1
    honest = "from relive.store.journal import Journal"
    assert wrongs(has_honest_doors, rooms | user | {"store/__init__": honest}) == []


def test_a_name_that_a_submodule_would_hide_is_found():
    rooms = {"store/__init__": "if TYPE_CHECKING:\n    from relive.store.effects import effects"}
    rooms |= {"store/effects": "def effects(): ...", "query/frame": "from relive.store import effects"}

    assert len(wrongs(has_honest_doors, rooms)) == 1
