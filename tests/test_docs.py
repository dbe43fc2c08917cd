"""The docs are complete, their links lead somewhere, and pages do what they say and print what they show."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from tests.page_outputs import Output, differences, find_output, mask, replace_outputs

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "relive"
REFERENCE = ROOT / "docs" / "reference"
README = ROOT / "README.md"
PAGES = sorted({README, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})

RUN_MARK = "<!-- run -->"
SHELL = ("bash", "-euo", "pipefail", "-c")
LANGUAGES = {"sh": SHELL, "bash": SHELL, "python": (sys.executable, "-c")}


def read(page: Path) -> str:
    """A page's text; a page that isn't there documents nothing."""
    return page.read_text(encoding="utf-8") if page.exists() else ""


# --- Markdown --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    language: str
    code: str
    line: int
    end: int  # the number of its last line
    marked: bool  # RUN_MARK stands just before it

    @property
    def file(self) -> str | None:
        """The name in a first line like `# train.py`, for blocks that are whole files."""
        named = re.match(r"#\s*([\w./-]+\.(?:py|toml))\b", self.code)
        return named[1] if named else None


def split(text: str) -> tuple[list[Block], list[str]]:
    """The fenced blocks of a page, and its lines with those blocks left blank."""
    blocks: list[Block] = []
    prose: list[str] = []
    opened: tuple[str, str, int, str] | None = None  # fence, language, line, indent
    code: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"(\s*)(`{3,}|~{3,})\s*([\w+-]*)", line)
        if opened is None and fence:
            opened, code = (fence[2], fence[3].lower(), number, fence[1]), []
        elif opened and line.strip().startswith(opened[0]) and not line.strip().strip(opened[0][0]):
            before = next((text for text in reversed(prose) if text.strip()), "")
            marked = before.strip() == RUN_MARK
            blocks.append(Block(opened[1], "\n".join(code) + "\n", opened[2], number, marked))
            prose.append("-")  # a mark is used up by the block after it
            opened = None
        elif opened:
            code.append(line.removeprefix(opened[3]))
        else:
            prose.append(line)
    return blocks, prose


def headings(text: str) -> list[str]:
    """The headings of a page as plain text."""
    found = [re.match(r"#{1,6}\s+(.+?)\s*#*$", line) for line in split(text)[1]]
    return [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1]).replace("`", "") for match in found if match]


def anchors(text: str) -> set[str]:
    """What a link to a part of the page may say after `#`."""
    found: set[str] = set()
    for heading in headings(text):
        plain = re.sub(r"[^\w\- ]", "", heading.replace("*", "").lower()).replace(" ", "-")
        count = sum(1 for anchor in found if re.fullmatch(re.escape(plain) + r"(-\d+)?", anchor))
        found.add(f"{plain}-{count}" if count else plain)
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def links(text: str) -> Iterator[str]:
    """The targets of a page's links and images that stay within the project."""
    prose = re.sub(r"`[^`\n]*`", "", "\n".join(split(text)[1]))
    inline = re.findall(r"\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)", prose)
    reference = re.findall(r"^\s{0,3}\[[^\]^]+\]:\s*<?(\S+?)>?(?:\s|$)", prose, flags=re.MULTILINE)
    html = re.findall(r'(?:src|href)="([^"]+)"', prose)
    for target in (*inline, *reference, *html):
        if not re.match(r"[a-z][a-z0-9+.-]*:|//", target, flags=re.IGNORECASE):
            yield target


def broken(page: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere, each with the reason."""
    wrong = []
    for link in links(text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            wrong.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(text if target == page else read(target)):
            wrong.append(f"{link}: no such heading")
    return wrong


# --- what must be documented -----------------------------------------------------------------------------------------


def commands(group: click.Command, path: str = "relive") -> Iterator[str]:
    """Every visible command below a group, as one would type it."""
    if not isinstance(group, click.Group):
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command and not command.hidden:
            yield f"{path} {name}"
            yield from commands(command, f"{path} {name}")


def command_line() -> click.Group:
    """The outermost click group of `relive.cli`, whatever its name is there."""
    groups = [value for value in vars(importlib.import_module("relive.cli")).values() if isinstance(value, click.Group)]
    inner = {id(command) for group in groups for command in group.commands.values()}
    outer = {id(group): group for group in groups if id(group) not in inner}
    assert len(outer) == 1, f"relive.cli should hold one outermost click group, not {len(outer)}"
    return outer.popitem()[1]


def slugs(text: str) -> Iterator[str]:
    """The first arguments of all calls `warn_once("slug", …)` in a source text."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name.lstrip("_") != "warn_once":
            continue
        given = node.args[:1] + [keyword.value for keyword in node.keywords if keyword.arg == "slug"]
        yield from (value.value for value in given if isinstance(value, ast.Constant) and isinstance(value.value, str))


def has_docstring(name: str, value: object) -> bool:
    """Whether someone wrote one; values that aren't functions or classes can't have their own."""
    if not (inspect.isroutine(value) or inspect.isclass(value)):
        return True
    text = value.__doc__ or ""
    return bool(text.strip()) and not text.startswith(f"{name}(")  # dataclasses write a signature themselves


def names_it(text: str, name: str) -> bool:
    """Whether a page speaks of `relive.name`, or of `name` as code."""
    return bool(re.search(rf"\brelive\.{re.escape(name)}\b|`@?{re.escape(name)}[`(\s=:]", text))


def test_every_command_is_in_the_reference():
    text = read(REFERENCE / "cli.md")
    known = list(commands(command_line()))
    missing = [command for command in known if not re.search(rf"{re.escape(command)}(?![\w-])", text)]

    assert known
    assert not missing, f"docs/reference/cli.md says nothing of {missing}"


def test_every_setting_is_in_the_reference():
    settings = importlib.import_module("relive.settings").Settings
    text = read(REFERENCE / "settings.md")
    missing = [name for name in settings._fields if not names_it(text, name)]

    assert not missing, f"docs/reference/settings.md says nothing of {missing}"


def test_every_warning_has_a_heading_in_the_messages():
    found = set(headings(read(REFERENCE / "messages.md")))
    used = {slug: path for path in sorted(SRC.rglob("*.py")) for slug in slugs(read(path))}
    missing = [f"{slug} ({path.relative_to(ROOT)})" for slug, path in sorted(used.items()) if slug not in found]

    assert not missing, f"docs/reference/messages.md has no heading for {missing}"


def test_every_public_name_is_explained():
    relive = importlib.import_module("relive")
    text = read(REFERENCE / "python.md")
    bare = [name for name in relive.__all__ if not has_docstring(name, getattr(relive, name))]
    missing = [name for name in relive.__all__ if not names_it(text, name)]

    assert relive.__all__
    assert not bare, f"without a docstring: {bare}"
    assert not missing, f"docs/reference/python.md says nothing of {missing}"


def test_messages_of_the_troubleshooting_page_are_those_of_relive():
    source = re.sub(r"""["']\s+f?["']""", "", "".join(read(path) for path in sorted(SRC.rglob("*.py"))))
    cells = re.findall(
        r"^\| ((?:`[^`]+`(?:, )?)+) \|", read(ROOT / "docs" / "how-to" / "troubleshooting.md"), re.MULTILINE
    )
    quoted = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell) if not message.isdigit()]
    missing = [
        message for message in quoted for part in message.strip("[]").split("…") if part.strip(" :'") not in source
    ]

    assert len(quoted) > 20
    assert not missing


def signatures(text: str) -> dict[str, list[tuple[str, str]]]:
    """The functions that a page defines, without a body: the names of their parameters, and the defaults."""
    found = {}
    for block in split(text)[0]:
        for code in re.split(r"\n(?=def )", block.code) if block.code.startswith("def ") else ():
            function = ast.parse(re.sub(r"\s+$", "", code) + ": ...").body[0]
            assert isinstance(function, ast.FunctionDef)
            found[function.name] = ast.unparse(function.args)
    return {name: parameters(eval(f"lambda {strip_types(args)}: None", {})) for name, args in found.items()}


def strip_types(args: str) -> str:
    """Parameters as a lambda has them, with the values of their defaults."""
    function = ast.parse(f"def f({args}): ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    for one in ast.walk(function):
        if isinstance(one, ast.arg):
            one.annotation = None
    return ast.unparse(function.args)


def parameters(function: Any) -> list[tuple[str, str]]:
    """Names with their kinds, and defaults, in order."""
    given = inspect.signature(function).parameters.values()
    return [(f"{one.kind.name} {one.name}", "" if one.default is one.empty else repr(one.default)) for one in given]


def test_signatures_in_the_reference_are_those_of_the_functions():
    relive = importlib.import_module("relive")
    shown = signatures(read(REFERENCE / "python.md"))
    missing = {name for name in relive.__all__ if inspect.isfunction(getattr(relive, name))} - shown.keys()
    wrong = {
        name: parameters(getattr(relive, name))
        for name, listed in shown.items()
        if inspect.isfunction(getattr(relive, name)) and listed != parameters(getattr(relive, name))
    }

    assert not missing
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path):
    wrong = broken(page, read(page))

    assert not wrong, "\n" + "\n".join(wrong)


# --- pages that are run ----------------------------------------------------------------------------------------------


def run(text: str, folder: Path) -> tuple[int, list[tuple[Output, str]]]:
    """Write the files that a page shows and run its marked blocks, top to bottom.

    Returns how many it ran, and each output that the page shows with the real one.
    """
    lines, found, count = text.splitlines(), [], 0
    for block in split(text)[0]:
        if block.marked:
            count += 1
            printed = execute(block, folder)
            if shown := find_output(lines, block.end):
                found.append((shown, printed))
        elif block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, encoding="utf-8")
    return count, found


def execute(block: Block, folder: Path) -> str:
    """What a block prints at a terminal of 110 columns, below the folder that pages don't know.

    Runs of two blocks start in different seconds, as those of a reader do: tables do not show times that all share.
    """
    time.sleep(1 - time.time() % 1)
    assert block.language in LANGUAGES, f"line {block.line}: only blocks in {', '.join(LANGUAGES)} can be run"
    env = dict(os.environ, PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), COLUMNS="110")
    env.pop("PYTHONWARNINGS", None)
    done = subprocess.run(
        [*LANGUAGES[block.language], block.code],
        cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode and "No module named 'torch'" in done.stdout:
        pytest.importorskip("torch")
    assert done.returncode == 0, f"line {block.line}:\n{block.code}\n{done.stdout}"
    return done.stdout.replace(str(folder.parent.resolve()), "…")


def project_folder(text: str, parent: Path) -> Path:
    """The folder that a page is read in: the one that it tells to make."""
    made = re.search(r"mkdir (\w+) && cd", text)
    folder = parent / (made[1] if made else "training")
    folder.mkdir()
    return folder


@pytest.mark.page
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page == README or RUN_MARK in read(page).splitlines()],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_the_page_does_what_it_says_and_prints_what_it_shows(page: Path, tmp_path: Path):
    text = read(page)
    count, found = run(text, project_folder(text, tmp_path))
    wrong = [(shown, printed, diff) for shown, printed in found if (diff := differences(shown.text, printed))]
    if wrong and os.environ.get("WRITE_OUTPUTS"):
        page.write_text(replace_outputs(text, [(shown, printed) for shown, printed, _ in wrong]), encoding="utf-8")

    assert count > 0, f"no block of {page.name} is marked {RUN_MARK}"
    assert not wrong, "\n".join(
        f"{page.relative_to(ROOT)}, line {shown.begin + 1}:\n{diff}\n{printed}" for shown, printed, diff in wrong
    )


# --- the checks can fail ---------------------------------------------------------------------------------------------

PAGE = """\
# Try it

```python
# train.py
print("trained")
```

<!-- run -->

```sh
python train.py > out.txt
```

```sh
exit 3
```

## Why `it`, and *how*?
[there](#why-it-and-how) [away](https://example.org) `[code](nowhere.md)` [lost](lost.md) [part](#lost)
"""


def test_marked_blocks_run_and_others_do_not(tmp_path: Path):
    assert run(PAGE, tmp_path) == (1, [])
    assert (tmp_path / "out.txt").read_text() == "trained\n"


def test_a_marked_block_that_fails_is_found(tmp_path: Path):
    with pytest.raises(AssertionError, match="exit 3"):
        run(PAGE.replace("```sh\nexit", f"{RUN_MARK}\n```sh\nexit"), tmp_path)


def test_an_output_that_a_page_does_not_have_is_found(tmp_path: Path):
    page = f"{RUN_MARK}\n```sh\necho 32 values in 1.8 s\n```\n\n    32 values in 0.4 s\n\nText.\n"
    right, wrong = (
        differences(shown.text, printed)
        for text in (page, page.replace("32 values in 0", "80 values in 0"))
        for shown, printed in run(text, tmp_path)[1]
    )

    assert right == ""
    assert "-80 values" in wrong
    assert "+32 values" in wrong


def test_outputs_differ_in_ids_times_measurements_and_widths_only():
    shown = "run       took   loss\n7c1f0b5e  1.3 s  0.14\n…\n2 rows"

    assert not differences(shown, "run took loss\n0000000000  13 min  1.5e-07\nmore\nand more\n2 rows\n")
    assert differences(shown, "run took loss\n0000000000  13 min  1.5e-07\n3 rows\n")
    assert differences(shown, "run loss\n7c1f0b5e 0.14\n2 rows\n")
    assert mask("about 2.2 s with 8 workers\n") == ["about AMOUNT with N workers"]
    assert mask("0.000218475 1e-05 12345678 1234e567 32") == ["NUMBER NUMBER ID ID 32"]


def test_outputs_of_a_page_can_be_written_anew(tmp_path: Path):
    page = f"{RUN_MARK}\n```sh\necho b; echo; echo c\n```\n\n    a\n\n## Next\n"
    _, found = run(page, tmp_path)

    assert replace_outputs(page, found) == page.replace("    a\n", "    b\n\n    c\n")


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)

    assert broken(page, PAGE) == ["lost.md: no such file", "#lost: no such heading"]


def test_commands_are_found_at_any_depth():
    leaf = click.Command("leaf")
    tree = click.Group("relive", {"a": click.Group("a", {"leaf": leaf}), "old": click.Command("old", hidden=True)})

    assert list(commands(tree)) == ["relive a", "relive a leaf"]


def test_slugs_are_found():
    text = 'warn_once("a-slug", "text")\nself.warn_once(slug="other")\nwarn("no")\nwarn_once(variable)'

    assert list(slugs(text)) == ["a-slug", "other"]


def test_a_missing_docstring_is_found():
    @dataclass
    class Bare:
        size: int

    assert not has_docstring("Bare", Bare)
    assert not has_docstring("f", lambda: None)
    assert has_docstring("click", click.Group)


def test_a_name_is_named_as_code_only():
    assert names_it("call `relive.log(…)`", "log")
    assert names_it("### `log(name, value)`", "log")
    assert not names_it("we log a lot, see relive.logs", "log")


# --- the map --------------------------------------------------------------------------------------------------------


ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"


def test_the_architecture_page_names_every_room():
    rooms = {path.parent.relative_to(SRC).as_posix() for path in SRC.rglob("__init__.py") if path.parent != SRC}
    named = set(re.findall(r"`([a-z_/]+)/`", read(ARCHITECTURE)))
    # A folder that only holds rooms is described by them.
    holders = {room for room in rooms if not [p for p in (SRC / room).glob("*.py") if p.name != "__init__.py"]}

    assert rooms - holders - named == set()
    assert named - rooms == set()


def test_every_file_that_the_architecture_page_names_is_there():
    cells = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", read(ARCHITECTURE))
    whole = {path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py")} | {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")
    }

    missing = [cell for cell in cells if not any(path == cell or path.endswith(f"/{cell}") for path in whole)]
    assert not missing


def test_every_module_in_the_diagrams_of_the_architecture_page_is_there():
    rooms = "|".join(path.name for path in SRC.iterdir() if (path / "__init__.py").exists())
    named = set(re.findall(rf"\b((?:{rooms})(?:\.[a-z_]+)+)\b", read(ARCHITECTURE)))
    found = {name for name in named if (SRC / name.replace(".", "/")).is_dir()}
    found |= {name for name in named if (SRC / (name.replace(".", "/") + ".py")).exists()}

    assert named
    assert named - found == set()


def test_the_format_page_lists_every_kind_of_journal_line():
    from relive.store.journal.line_schema import kinds

    page = read(REFERENCE / "format.md")

    assert [kind for kind in kinds() if f"| `{kind}` |" not in page] == []
