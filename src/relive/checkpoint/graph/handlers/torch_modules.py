"""Handlers of torch modules, data loaders and their iterators."""

from __future__ import annotations

import sys
from typing import Any

from relive.checkpoint.graph.handlers.attributes import Attributes
from relive.checkpoint.graph.object_tokens import PLAIN_TYPES, pickled_value
from relive.checkpoint.graph.registry import MISSING, CannotRestore, Handler, Restorer, Unreadable, Walker
from relive.checkpoint.state import is_tracked_iterator, make_iterator

_TENSORS = frozenset({"_parameters", "_buffers", "_modules"})
_EMPTY_AT_FIRST = frozenset(
    "_non_persistent_buffers_set _backward_pre_hooks _backward_hooks _forward_hooks _forward_hooks_with_kwargs "
    "_forward_hooks_always_called _forward_pre_hooks _forward_pre_hooks_with_kwargs _state_dict_hooks "
    "_state_dict_pre_hooks _load_state_dict_pre_hooks _load_state_dict_post_hooks".split()
)


class ModuleHandler(Handler):
    """A module: parameters, buffers and modules inside it, hooks, and any other attribute.

    The dicts that hold them are part of its content, since nobody else refers to them: a model has ten for each layer.
    """

    def content(self, obj: Any, walk: Walker) -> Any:
        own, ref = obj.__dict__, walk.ref
        found: list[Any] = []
        skipped = Attributes.of(type(obj)).skipped
        for name, value in own.items():
            kind = type(value)
            if kind in PLAIN_TYPES:
                found += (name, value)
            elif name in _TENSORS and isinstance(value, dict):
                inner: list[Any] = []
                for key, one in value.items():
                    inner += (key, one if one is None else ref(one, ".", key))
                found += (name, tuple(inner))
            elif name in _EMPTY_AT_FIRST and not value:
                found += (name, ())
            elif name not in skipped:
                found += (name, ref(value, ".", name))
        return tuple(found)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        own = obj.__dict__
        tokens = dict(zip(content[::2], content[1::2], strict=True))
        for name, token in tokens.items():
            if name in _TENSORS and type(token) is tuple and not (len(token) == 1 and type(token[0]) is int):
                values = {key: restore.value(one) for key, one in zip(token[::2], token[1::2], strict=True)}
                holder = own.setdefault(name, {})
                holder.clear()
                holder.update(values)
            elif token == () and name in _EMPTY_AT_FIRST:
                if own.get(name):
                    own[name].clear()
                elif name not in own:  # it was made by the restore
                    own[name] = type(vars(sys.modules["torch"].nn.Module())[name])()
            else:
                own[name] = restore.value_or(token, own.get(name, MISSING))
        skipped = Attributes.of(type(obj)).skipped
        for name in [name for name in own if name not in tokens and name not in skipped]:
            del own[name]


class LoaderIteratorHandler(Handler):
    """The iterator of a data loader: how many batches it gave, and the random states that it began with."""

    def content(self, obj: Any, walk: Walker) -> Any:
        if not is_tracked_iterator(obj):
            raise Unreadable("the position of this iterator over a data loader can't be seen")
        indices = obj._sampler_iter
        return indices.number, indices.count, pickled_value(indices.states), walk.ref(indices.sampler, ".", "(sampler)")

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


def choose_torch_module(kind: type) -> Handler | None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return None
    if issubclass(kind, torch.nn.Module):
        jit = getattr(torch, "jit", None)
        if jit is not None and issubclass(kind, getattr(jit, "ScriptModule", ())):
            from relive.checkpoint.graph.handlers.objects import StateDictHandler

            return StateDictHandler()
        return ModuleHandler()
    loaders = sys.modules.get("torch.utils.data.dataloader")
    if loaders is not None and issubclass(kind, loaders._BaseDataLoaderIter):
        return LoaderIteratorHandler()
    return None


def _has_sampler(obj: Any, sampler: Any) -> bool:
    loaders = sys.modules.get("torch.utils.data")
    return loaders is not None and isinstance(obj, loaders.DataLoader) and obj._index_sampler is sampler
