"""States of random generators: the global ones of Python, numpy and torch on every device, and generator objects."""

from __future__ import annotations

import base64
import marshal
import random
import sys
from array import array
from typing import Any


def capture_random_states() -> dict[str, Any]:
    """Returns the states of the global generators of `random`, `np.random` and `torch`."""
    version, words, gauss = random.getstate()
    # 625 numbers as bytes: flattening each of them would hold up the training.
    states: dict[str, Any] = {"python": (version, array("I", words).tobytes(), gauss)}
    of_numpy = sys.modules.get("numpy.random")  # while it is imported, it is no attribute of numpy yet
    if of_numpy is not None:
        states["numpy"] = _key_as_bytes(of_numpy.get_state(legacy=False))
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.get_rng_state().numpy().tobytes()
        if torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state_all()
        if torch.backends.mps.is_available():
            states["mps"] = torch.mps.get_rng_state()
    if (of_numba := _numba_states()) is not None:
        states["numba"] = tuple(of_numba.rnd_get_state(pointer()) for pointer in _numba_pointers(of_numba))
    return states


def _numba_states() -> Any:
    """Returns the module with which the generators of compiled functions are seen, if numba is loaded and has it."""
    found = sys.modules.get("numba._helperlib")
    return found if hasattr(found, "rnd_get_state") and hasattr(found, "rnd_set_state") else None


def _numba_pointers(library: Any) -> list[Any]:
    """The functions that locate the generators of the current thread: those of `random` and of `np.random`."""
    return [library.rnd_get_py_state_ptr, library.rnd_get_np_state_ptr]


def _key_as_bytes(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the state with the 624 words of the Mersenne Twister as bytes; other generators have a few numbers."""
    inner = state["state"]
    return {**state, "state": {**inner, "key": inner["key"].tobytes()}} if "key" in inner else state


def restore_random_states(states: dict[str, Any]) -> None:
    """Restores the global generators of the libraries that are named."""
    if "python" in states:
        version, words, gauss = states["python"]
        random.setstate((version, tuple(array("I", words)), gauss))
    if "numpy" in states:
        import numpy
        from numpy.random import set_state

        inner = states["numpy"]["state"]
        if isinstance(inner.get("key"), bytes):  # earlier checkpoints hold an array
            inner = {**inner, "key": numpy.frombuffer(inner["key"], numpy.uint32)}
        set_state({**states["numpy"], "state": inner})
    if "torch" in states:
        import torch

        state = states["torch"]  # earlier checkpoints hold a tensor
        torch.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8) if type(state) is bytes else state)
        if "cuda" in states and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(states["cuda"])
        if "mps" in states and torch.backends.mps.is_available():
            torch.mps.set_rng_state(states["mps"])
    if "numba" in states and (of_numba := _numba_states()) is not None:
        for pointer, state in zip(_numba_pointers(of_numba), states["numba"], strict=True):
            of_numba.rnd_set_state(pointer(), state)


def encoded_random_states(library: str | None = None) -> str:
    """Returns the states of the global generators as text: of all libraries, or of one."""
    states = capture_random_states()
    if library is not None:
        states = {library: states[library]}
    return base64.b64encode(marshal.dumps(states, 2)).decode()


def decode_random_states(states: str) -> dict[str, Any]:
    """Returns what `encoded_random_states` has encoded, by library."""
    found: dict[str, Any] = marshal.loads(base64.b64decode(states))
    return found


def is_generator(value: Any) -> bool:
    """Whether a value is a random generator of Python, numpy or torch."""
    return _generator_kind(value) is not None


def generator_state(value: Any) -> Any:
    kind = _generator_kind(value)
    if kind == "python":
        return value.getstate()
    if kind == "numpy":
        return value.bit_generator.state
    if kind == "numpy-legacy":
        return value.get_state(legacy=False)
    return value.get_state().numpy().tobytes()


def restore_generator(value: Any, state: Any) -> None:
    kind = _generator_kind(value)
    if kind == "python":
        value.setstate(state)
    elif kind == "numpy":
        value.bit_generator.state = state
    elif type(state) is bytes:
        torch = sys.modules["torch"]
        value.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    else:  # of numpy; checkpoints of earlier releases hold a tensor for torch
        value.set_state(state)


def _generator_classes() -> dict[type, str]:
    """Returns the generator classes of the loaded libraries, with their kinds."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    found: dict[type, str] = {random.Random: "python"}
    if numpy is not None and "numpy.random" in sys.modules:
        found |= {numpy.random.Generator: "numpy", numpy.random.RandomState: "numpy-legacy"}
    if torch is not None:
        found[torch.Generator] = "torch"
    return found


def _generator_kind(value: Any) -> str | None:
    return next((name for kind, name in _generator_classes().items() if isinstance(value, kind)), None)
