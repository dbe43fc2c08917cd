"""Handlers of random generators: Python's, numpy's with the children they have spawned, and torch's."""

from __future__ import annotations

import random
import sys
from typing import Any

from relive.checkpoint.graph.handlers.attributes import attribute_tokens, restore_attributes
from relive.checkpoint.graph.object_tokens import value_token
from relive.checkpoint.graph.registry import CannotRestore, Handler, Restorer, Walker


class PythonRandomHandler(Handler):
    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        if isinstance(obj, random.SystemRandom):
            return None, attribute_tokens(obj, walk)
        return random.Random.getstate(obj), attribute_tokens(obj, walk)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        cls = restore.find_class(kind)
        return cls.__new__(cls)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if content[0] is not None:
            random.Random.setstate(obj, content[0])
        restore_attributes(obj, content[1], restore)


class BitGeneratorHandler(Handler):
    """A bit generator of numpy: its state, and how many children its seed sequence has spawned."""

    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return value_token(obj.state), walk.ref(obj.seed_seq, ".", "seed_seq")

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        return restore.find_class(kind)(restore.complete_value(content[1]))

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if restore.complete_value(content[1]) is not obj.seed_seq:
            raise CannotRestore("it was seeded otherwise")
        obj.state = restore.value(content[0])


class SeedSequenceHandler(Handler):
    is_data = True
    creates_complete = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return value_token((obj.entropy, obj.spawn_key, obj.pool_size, obj.n_children_spawned))

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        entropy, key, size, spawned = restore.value(content)
        return restore.find_class(kind)(entropy, spawn_key=key, pool_size=size, n_children_spawned=spawned)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        entropy, key, size, spawned = restore.value(content)
        if (obj.entropy, obj.spawn_key, obj.pool_size) != (entropy, key, size) or spawned < obj.n_children_spawned:
            raise CannotRestore("it was seeded otherwise")
        obj.spawn(spawned - obj.n_children_spawned)


class NumpyGeneratorHandler(Handler):
    is_data = True
    creates_complete = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return (walk.ref(obj.bit_generator, ".", "bit_generator"),)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        return restore.find_class(kind)(restore.complete_value(content[0]))

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if restore.value(content[0]) is not obj.bit_generator:
            raise CannotRestore("it has another bit generator now")


class RandomStateHandler(Handler):
    """The older generator of numpy."""

    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return (value_token(obj.get_state(legacy=False)),)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        return restore.find_class(kind)()

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        obj.set_state(restore.value(content[0]))


class TorchGeneratorHandler(Handler):
    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return str(obj.device), obj.initial_seed(), obj.get_state().numpy().tobytes()

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        return restore.find_class(kind)(content[0])

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        torch = sys.modules["torch"]
        obj.set_state(torch.frombuffer(bytearray(content[2]), dtype=torch.uint8))


_python = PythonRandomHandler()


def choose_generator(kind: type) -> Handler | None:
    if issubclass(kind, random.Random):
        return _python
    numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    if numpy is not None:
        of_numpy: tuple[tuple[type, type[Handler]], ...] = (
            (numpy.Generator, NumpyGeneratorHandler), (numpy.BitGenerator, BitGeneratorHandler),
            (numpy.RandomState, RandomStateHandler), (numpy.SeedSequence, SeedSequenceHandler),
        )  # fmt: skip
        for base, handler in of_numpy:
            if issubclass(kind, base):
                return handler()
    if torch is not None and hasattr(torch, "Generator") and issubclass(kind, torch.Generator):
        return TorchGeneratorHandler()
    return None
