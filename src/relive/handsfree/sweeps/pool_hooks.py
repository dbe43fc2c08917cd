"""Pools whose calls are runs: joblib, `multiprocessing`, `concurrent.futures`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from relive.handsfree.sweeps.hydra_jobs import hook_hydra_jobs
from relive.handsfree.sweeps.sweep_calls import sweep
from relive.record import session


def _wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    if hasattr(original, "__relive_sweeps__"):
        return

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        return wrapper(original, self, *args, **options)

    wrapped.__relive_sweeps__ = True  # type: ignore[attr-defined]
    setattr(owner, name, wrapped)


def _packed(function: Any, items: Iterable[Any]) -> Iterator[Any]:
    """Yields each item with the number of its call."""
    for item in items:
        yield sweep.number_next(function, (item,), {}), item


# --- joblib -----------------------------------------------------------------------------------------------------------


def hook_joblib(module: ModuleType) -> None:
    _wrap(module.Parallel, "__call__", _call_parallel)


def _call_parallel(original: Any, parallel: Any, calls: Iterable[Any]) -> Any:
    if session.open_replayed_run is not None:
        calls = list(calls)  # the call to replay is made before the others, and in this thread
        for function, args, options in calls:
            if sweep.is_recorded(function):
                sweep.number_next(function, args, options)
        return original(parallel, calls)
    numbered = _numbered(calls)
    return original(parallel, list(numbered) if hasattr(calls, "__len__") else numbered)  # it tells how many there are


def _numbered(calls: Iterable[Any]) -> Iterator[Any]:
    wrapped: dict[Any, Any] = {}
    for function, args, options in calls:
        if not sweep.is_recorded(function):
            yield function, args, options
            continue
        if id(function) not in wrapped:
            wrapped[id(function)] = sweep.wrap(function)
        yield wrapped[id(function)], (sweep.number_next(function, args, options), *args), options


# --- multiprocessing --------------------------------------------------------------------------------------------------


def hook_pool(module: ModuleType) -> None:
    _wrap(module.Pool, "apply_async", _apply)
    _wrap(module.Pool, "_map_async", functools.partial(_map_async, module))
    for name in ("imap", "imap_unordered"):
        _wrap(module.Pool, name, _map_lazily)


def _apply(original: Any, pool: Any, func: Any, args: Any = (), kwds: Any = None, *others: Any, **options: Any) -> Any:
    if not sweep.is_recorded(func):
        return original(pool, func, args, kwds or {}, *others, **options)
    number = sweep.number_next(func, args, kwds or {})
    if session.open_replayed_run is not None:
        return original(pool, func, args, kwds or {}, *others, **options)
    return original(pool, sweep.wrap(func), (number, *args), kwds or {}, *others, **options)


def _map_async(
    module: Any, original: Any, pool: Any, func: Any, iterable: Any, mapper: Any, *others: Any, **options: Any
) -> Any:
    if not sweep.is_recorded(func):
        return original(pool, func, iterable, mapper, *others, **options)
    is_star = mapper is module.starmapstar
    items = list(iterable)
    numbers = [sweep.number_next(func, tuple(item) if is_star else (item,), {}) for item in items]
    if session.open_replayed_run is not None:
        return original(pool, func, items, mapper, *others, **options)
    numbered = [(number, *item) if is_star else (number, item) for number, item in zip(numbers, items, strict=True)]
    return original(pool, sweep.wrap(func), numbered, module.starmapstar, *others, **options)


def _map_lazily(original: Any, pool: Any, func: Any, iterable: Any, *others: Any, **options: Any) -> Any:
    if not sweep.is_recorded(func):
        return original(pool, func, iterable, *others, **options)
    if session.open_replayed_run is not None:
        items = [item for _, item in _packed(func, iterable)]
        return original(pool, func, items, *others, **options)
    return original(pool, sweep.wrap(func, is_packed=True), _packed(func, iterable), *others, **options)


def hook_process(module: ModuleType) -> None:
    _wrap(module.BaseProcess, "__init__", _init_process)


def _init_process(
    original: Any, process: Any, group: Any = None, target: Any = None, *others: Any, **options: Any
) -> None:
    bound = _bind_arguments(*others, **options)
    if target is not None and sweep.is_recorded(target) and not _share_model(bound["args"], bound["kwargs"]):
        number = sweep.number_next(target, bound["args"], bound["kwargs"])
        if session.open_replayed_run is None:
            target, others = sweep.wrap(target), ()
            options = {**bound, "args": (number, *bound["args"])}
    original(process, group, target, *others, **options)


def _share_model(args: Any, kwargs: Any) -> bool:
    """Whether processes get memory that they share: they train one model together, and are one run."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    given = [*args, *kwargs.values()]
    models = (one for one in given if isinstance(one, torch.nn.Module))
    tensors = (one for one in given if isinstance(one, torch.Tensor))
    return any(one.is_shared() for one in [*tensors, *(part for model in models for part in model.parameters())])


def _bind_arguments(name: Any = None, args: Any = (), kwargs: Any = None, **options: Any) -> dict[str, Any]:
    """The arguments of `Process` after its target, by their names."""
    return {"name": name, "args": args, "kwargs": kwargs or {}, **options}


def hook_spawn(module: ModuleType) -> None:
    original = module.get_preparation_data

    @functools.wraps(original)
    def get_preparation_data(name: str) -> Any:
        # The child ignores keys that it does not know, but unpickles them before it loads the main module.
        found = original(name)
        return found | {"relive": sweep.set_up} if sweep.set_up is not None else found

    module.get_preparation_data = get_preparation_data  # type: ignore[attr-defined]


# --- concurrent.futures -----------------------------------------------------------------------------------------------


def hook_futures(module: ModuleType) -> None:
    _wrap(module.ProcessPoolExecutor, "submit", _submit)
    _wrap(module.ProcessPoolExecutor, "map", _map_futures)


def _submit(original: Any, executor: Any, fn: Any, /, *args: Any, **options: Any) -> Any:
    if not sweep.is_recorded(fn):
        return original(executor, fn, *args, **options)
    number = sweep.number_next(fn, args, options)
    if session.open_replayed_run is not None:
        return original(executor, fn, *args, **options)
    return original(executor, sweep.wrap(fn), number, *args, **options)


def _map_futures(original: Any, executor: Any, fn: Any, *iterables: Any, **options: Any) -> Any:
    if not sweep.is_recorded(fn):
        return original(executor, fn, *iterables, **options)
    calls = list(zip(*iterables, strict=False))
    numbers = [sweep.number_next(fn, args, {}) for args in calls]
    if session.open_replayed_run is not None:
        return original(executor, fn, *zip(*calls, strict=True), **options)
    return original(executor, sweep.wrap(fn), numbers, *zip(*calls, strict=True), **options)


SWEEP_HOOKS: dict[str, Callable[[ModuleType], None]] = {
    "hydra._internal.callbacks": hook_hydra_jobs,
    "joblib.parallel": hook_joblib,
    "multiprocessing.pool": hook_pool,
    "multiprocessing.process": hook_process,
    "multiprocessing.spawn": hook_spawn,
    "concurrent.futures.process": hook_futures,
}
