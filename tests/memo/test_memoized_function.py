"""What users see of a remembered function."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import relive
from relive.errors import ReliveError, ReliveWarning
from relive.memo import Call
from relive.memo.memoizer import Entry, InMemory, Memoizer
from relive.store import Home
from relive.store.chunks import MemoTable

calls: list[Any] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


@relive.memo
def square(x: Any, *, times: int = 1) -> Any:
    """Squares."""
    calls.append(x)
    return x * x * times


def test_a_second_call_is_a_hit(home: Path):
    assert [square(3), square(3), square(x=3, times=1), square(3, times=2)] == [9, 9, 9, 18]
    assert calls == [3, 3]
    assert (home / "memo.sqlite").exists()


def test_the_wrapper_keeps_the_metadata_of_the_function():
    assert square.__name__ == "square"
    assert square.__doc__ == "Squares."
    assert str(inspect.signature(square)) == "(x: 'Any', *, times: 'int' = 1) -> 'Any'"
    assert pickle.loads(pickle.dumps(square)) is square


def test_a_wrong_call_is_the_usual_type_error():
    with pytest.raises(TypeError, match=r"square\(\) got an unexpected keyword argument 'wrong'"):
        square(1, wrong=2)


def test_both_memoizers_can_be_chosen(memoizer: Memoizer):
    @relive.memo(memoizer=memoizer)
    def double(x: int) -> int:
        calls.append(x)
        return 2 * x

    assert [double(2), double(2)] == [4, 4]
    assert calls == [2]


def test_ignored_arguments_do_not_count():
    @relive.memo(ignore=["verbose"])
    def fetch(url: str, verbose: bool = False) -> str:
        calls.append(url)
        return url

    fetch("a")
    fetch("a", verbose=True)

    assert calls == ["a"]


def test_hooks_decide_what_is_stored_and_reused():
    seen: list[tuple[Call, Any]] = []

    def store(call: Call, result: Any) -> bool:
        seen.append((call, result))
        return result is not None

    def reuse(call: Call, entry: Entry) -> bool:
        return call.arguments["x"] != 7 and entry.age_days < 30

    @relive.memo(store=store, reuse=reuse)
    def f(x: int) -> int | None:
        calls.append(x)
        return x or None

    for x in (0, 0, 1, 1, 7, 7):
        f(x)

    assert calls == [0, 0, 1, 7, 7]
    assert seen[0][0].function.endswith("f")
    assert seen[0][0].arguments == {"x": 0}


def test_a_hook_that_fails_costs_no_result():
    def broken(call: Call, about: Any) -> bool:
        raise KeyError("oops")

    @relive.memo(store=broken)
    def f(x: int) -> int:
        calls.append(x)
        return x

    with pytest.warns(ReliveWarning, match=r"\[memo-hook\] .*KeyError: 'oops'"):
        assert f(1) == 1
    assert f(1) == 1
    assert calls == [1, 1]


def test_exceptions_are_stored_only_if_asked_for():
    def fails(x: Any) -> Any:
        calls.append(x)
        raise (FileNotFoundError if x == "gone" else RuntimeError)(x)

    plain, keeping = relive.memo(fails), relive.memo(exceptions=(FileNotFoundError,))(fails)
    for function in (plain, plain, keeping, keeping, plain):
        with pytest.raises(FileNotFoundError, match="gone") as caught:
            function("gone")
        if len(calls) == 3 and function is keeping:
            notes = getattr(caught.value, "__notes__", [])
    with pytest.raises(RuntimeError):
        keeping("other")
    with pytest.raises(RuntimeError):
        keeping("other")

    # Two of the plain one, one of the keeping one, one of the plain one, which reuses no exceptions, and two others.
    assert calls == ["gone"] * 4 + ["other"] * 2
    assert "remembered by relive.memo" in notes[0]


def test_a_type_without_a_stable_hash_is_computed_and_warned_about_once():
    class Thing:
        def __init__(self) -> None:
            self.lines = (line for line in ())

    thing = Thing()
    with pytest.warns(ReliveWarning, match=r"\[memo-unhashable\].*generator.*lines.*relive\.memo\.register") as caught:
        [_calls_of(thing) for _ in range(2)]
    relive.memo.register(Thing, lambda _: "thing")
    calls.clear()
    _calls_of(thing)
    _calls_of(thing)

    assert len(caught) == 1
    assert calls == [thing]


@relive.memo
def _calls_of(thing: Any) -> int:
    calls.append(thing)
    return 1


def test_a_result_that_cannot_be_stored_is_returned_and_warned_about_once():
    @relive.memo
    def stream(n: int) -> Any:
        calls.append(n)
        return iter(range(n)), threading.Lock()

    with pytest.warns(ReliveWarning, match=r"\[memo-unstorable\].*tuple.*pickled") as caught:
        found = [list(stream(3)[0]) for _ in range(2)]

    assert found == [[0, 1, 2]] * 2
    assert len(caught) == 1
    assert calls == [3, 3]


def test_damage_is_a_miss_with_a_warning(change: Callable[..., None]):
    square(3)
    change("update entries set form = '8'")
    with pytest.warns(ReliveWarning, match=r"\[memo-unreadable\].*is damaged"):
        assert square(3) == 9
    assert square(3) == 9

    assert calls == [3, 3]


def test_a_file_that_is_no_database_is_set_aside(home: Path):
    square(3)
    relive.memo.Sqlite(Home(home)).close()
    from relive.memo.home_stores import HOMES

    store = HOMES.store()
    assert store is not None
    store.close()
    for suffix in ("-wal", "-shm"):
        (home / f"memo.sqlite{suffix}").unlink(missing_ok=True)
    (home / "memo.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.warns(ReliveWarning, match=r"\[memo-unreadable\].*set aside"):
        assert square(3) == 9
    assert square(3) == 9

    assert calls == [3, 3]
    assert list(home.glob("memo.sqlite.damaged-*"))


def test_a_home_that_cannot_be_written_costs_nothing_but_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("RELIVE_HOME", str(tmp_path / "file" / "home"))
    with pytest.warns(ReliveWarning, match=r"\[memo-off\]"):
        assert square(3) == 9

    assert square(3) == 9


def test_switched_off_every_call_is_made(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RELIVE_OFF", "1")

    assert [square(3), square(3)] == [9, 9]
    assert calls == [3, 3]
    assert not home.exists()


def test_methods_count_their_object():
    class Model:
        def __init__(self, weight: int) -> None:
            self.weight = weight

        @relive.memo
        def predict(self, x: int) -> int:
            calls.append(x)
            return self.weight * x

    relive.memo.register(Model, lambda model: model.weight)

    assert [Model(2).predict(3), Model(2).predict(3), Model(3).predict(3)] == [6, 6, 9]
    assert calls == [3, 3]


def test_coroutines_are_computed_once_and_the_loop_goes_on():
    ticks: list[int] = []

    @relive.memo
    async def fetch(x: int) -> int:
        calls.append(x)
        await asyncio.sleep(0.05)
        return 2 * x

    async def tick() -> None:
        for at in range(5):
            ticks.append(at)
            await asyncio.sleep(0.005)

    async def main() -> list[Any]:
        return await asyncio.gather(*(fetch(1) for _ in range(50)), fetch(2), tick())

    found = asyncio.run(main())

    assert found == [2] * 50 + [4, None]
    assert sorted(calls) == [1, 2]
    assert len(ticks) == 5
    assert inspect.iscoroutinefunction(fetch)


def test_threads_compute_once():
    @relive.memo
    def slow(x: int) -> int:
        calls.append(x)
        time.sleep(0.05)
        return x

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        found = list(pool.map(slow, [5] * 50))

    assert found == [5] * 50
    assert calls == [5]


def test_when_the_first_fails_the_next_tries():
    first = threading.Lock()

    @relive.memo
    def fails_once(x: int) -> int:
        calls.append(x)
        time.sleep(0.02)
        if first.acquire(blocking=False):
            raise RuntimeError("first")
        return x

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        futures = [pool.submit(fails_once, 1) for _ in range(10)]
        failed = [future for future in futures if future.exception() is not None]

    assert len(failed) == 1
    assert calls == [1, 1]


def test_a_function_may_call_itself():
    @relive.memo
    def fibonacci(n: int) -> int:
        calls.append(n)
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert fibonacci(30) == 832_040
    assert len(calls) == 31


def test_a_forked_child_may_use_it_while_the_parent_computes():
    @relive.memo
    def slow(x: int) -> int:
        child = os.fork()
        if not child:
            os._exit(0 if square(x) == x * x else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert slow(4) == 0
    assert square(4) == 16
    assert calls == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: relive.memo(staticmethod(lambda: 1)), "put it below"),
        (lambda: relive.memo(type("Thing", (), {})), "is not a function"),
        (lambda: relive.memo(3), "is not a function"),
        (lambda: relive.memo(_yields), "is a generator"),
    ],
)
def test_decorating_something_unsupported_raises_at_once(make: Callable[[], Any], message: str):
    with pytest.raises(ReliveError, match=message):
        make()


def _yields() -> Any:
    yield 1


def test_a_bound_on_the_size_is_a_setting(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RELIVE_MEMO_BYTES", "25000")

    @relive.memo
    def large(x: int) -> bytes:
        return os.urandom(9_000)

    for at in range(5):
        large(at)

    assert len(MemoTable(home / "memo.sqlite").rows()) == 2


def test_nothing_is_written_for_a_memoizer_in_memory(home: Path):
    @relive.memo(memoizer=InMemory())
    def secret(x: int) -> int:
        return x

    secret(1)

    assert not home.exists()


def test_importing_relive_does_not_load_the_room(script: Any):
    done = script(
        """
        import sys, relive
        print(callable(relive.memo), relive.memo.register.__name__)
        print(*sorted(name for name in sys.modules if name.startswith("relive.memo") or name in ("sqlite3", "asyncio")))
        """
    )

    assert done.stdout.splitlines() == ["True register", "relive.memo relive.memo.memo_decorator"]
    assert sys.modules["relive.memo"] is relive.memo
