"""Handlers of iterators: those of C, such as of lists, `zip` and itertools; generators, coroutines; data loaders."""

from __future__ import annotations

import gc
import itertools
import opcode
import sys
import types
from typing import Any

from relive.checkpoint.graph.object_tokens import value_token
from relive.checkpoint.graph.registry import CannotRestore, Handler, Restorer, Unreadable, Walker
from relive.checkpoint.state import is_tracked_iterator, make_iterator


class IteratorHandler(Handler):
    """An iterator of C, by its own way of pickling, which names what it iterates over."""

    creates_complete = True

    def content(self, obj: Any, walk: Walker) -> Any:
        reduced = obj.__reduce__()
        if type(reduced) is not tuple:
            raise Unreadable("its position can't be seen")
        make, args, *state = reduced
        is_fresh = type(obj) in _COPYING_ITERATORS  # it gives the items that are left as a list made just now
        if is_fresh:
            return walk.ref(make, ".", "(class)"), (walk.ref(tuple(args[0]), ".", "(left)"),), (), True
        held = set(map(id, gc.get_referents(obj)))
        for part in (*args, *state[:1]):
            if id(part) not in held and type(part) is not tuple:
                walk.made(part)
        return walk.ref(make, ".", "(class)"), walk.refs(args), walk.refs(state[:1]), False

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        args = [restore.complete_value(token) for token in content[1]]
        made = restore.value(content[0])(*([list(args[0])] if content[3] else args))
        if content[2] and content[2][0] is not None:
            made.__setstate__(restore.complete_value(content[2][0]))
        return made

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if content[3]:
            raise CannotRestore("its position can't be set in place")
        state = restore.complete_value(content[2][0]) if content[2] else None
        current = obj.__reduce__()
        args = [restore.value(token) for token in content[1]]
        is_same = len(current[1]) == len(args) and all(map(_is_same_part, current[1], args))
        if is_same and type(obj) not in _MOVING_ITERATORS:
            if state is not None:
                obj.__setstate__(state)
            return  # else it has no position of its own: what it draws from has been restored
        raise CannotRestore("its position can't be set in place")


_FINISHED = ("finished",)
_YIELD = opcode.opmap["YIELD_VALUE"]
_FRAMES = ("gi_frame", "cr_frame", "ag_frame")


class GeneratorHandler(Handler):
    """A generator or coroutine: where it stands, its variables and what it is computing. It can't be put elsewhere."""

    def can_restore(self, content: Any) -> bool:
        return bool(content == _FINISHED)

    def content(self, obj: Any, walk: Walker) -> Any:
        frame = next((getattr(obj, name) for name in _FRAMES if hasattr(obj, name)), None)
        if frame is None:
            return _FINISHED
        code, variables = frame.f_code, dict(frame.f_locals)
        known = {id(value) for value in (*variables.values(), code, frame.f_globals, frame.f_builtins)}
        # Values of an expression that is half computed are not variables; only the garbage collector lists them.
        pending = [one for one in gc.get_referents(obj) if id(one) not in known and not isinstance(one, _CODE)]
        return code.co_qualname, _count_yields(code, frame.f_lasti), walk.attributes(variables), walk.refs(pending)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if content != _FINISHED:
            raise CannotRestore("a generator can't be put to another position")
        obj.close()

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        if content != _FINISHED:
            raise CannotRestore("a generator can't be made again")
        made = (_ for _ in ())
        made.close()
        return made


_CODE = (types.CodeType, types.CellType, types.FunctionType, types.FrameType, str)


def _count_yields(code: types.CodeType, position: int) -> int:
    """The position as the number of `yield` before it: statements that are added don't change it."""
    return code.co_code[: max(0, position) + 1 : 2].count(_YIELD)


class TeeHandler(IteratorHandler):
    """An iterator made by `itertools.tee`: it shares what it has drawn with others, which can't be put back."""

    is_restorable = False

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        raise CannotRestore("iterators made by tee can't be put to another position")

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        raise CannotRestore("iterators made by tee can't be made again")


range_iterator = type(iter(range(0)))
_ITERATORS = (
    type(iter([])), type(iter(())), range_iterator, type(iter("")), type(iter("é")), type(iter(b"")),
    type(iter(bytearray())),
    type(iter({})), type(iter({}.values())), type(iter({}.items())), type(iter(set())), type(reversed([])),
    enumerate, zip, map, filter, reversed,
    *(kind for kind in vars(itertools).values() if isinstance(kind, type)),
)  # fmt: skip


def _is_same_part(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, range | str | bytes | int) and one == other)


_MOVING_ITERATORS = frozenset({itertools.cycle, itertools.count, itertools.repeat, itertools.chain, itertools.islice})
_COPYING_ITERATORS: frozenset[type] = frozenset(
    {type(iter({})), type(iter({}.values())), type(iter({}.items())), type(iter(set()))}
)


class LoaderIteratorHandler(Handler):
    """The iterator of a data loader: how many batches it gave, and the random states that it began with."""

    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        if not is_tracked_iterator(obj):
            raise Unreadable("the position of this iterator over a data loader can't be seen")
        indices = obj._sampler_iter
        return indices.number, indices.count, value_token(indices.states), walk.ref(indices.sampler, ".", "(sampler)")

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        """Makes an iterator of the loader that has this sampler."""
        sampler = restore.value(content[3])
        loader = restore.find_live(lambda obj: _has_sampler(obj, sampler))
        if loader is None:
            raise CannotRestore("its data loader is not here")
        made = make_iterator(loader)
        if not is_tracked_iterator(made):
            raise CannotRestore("its position can't be set")
        return made

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        obj._sampler_iter.seek(content[1], restore.value(content[2]))
        obj._num_yielded = content[1]


def _has_sampler(obj: Any, sampler: Any) -> bool:
    loaders = sys.modules.get("torch.utils.data")
    return loaders is not None and isinstance(obj, loaders.DataLoader) and obj._index_sampler is sampler


def choose_iterator(kind: type) -> Handler | None:
    if issubclass(kind, (itertools._tee, itertools._tee_dataobject)):  # type: ignore[attr-defined]
        return TeeHandler()
    if issubclass(kind, (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)):
        return GeneratorHandler()
    loaders = sys.modules.get("torch.utils.data.dataloader")
    if loaders is not None and issubclass(kind, loaders._BaseDataLoaderIter):
        return LoaderIteratorHandler()
    iterators: Any = _ITERATORS
    return IteratorHandler() if issubclass(kind, iterators) else None
