"""Listens to functions by which config libraries parse command lines."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from relive.handsfree.configs.config_notes import noted_settings

Callers = Callable[[str], bool]  # whether calls from a file are heard


def any_caller(_path: str) -> bool:
    return True


def project_callers(path: str) -> bool:
    """Only the code of the project: libraries parse command lines, too."""
    return noted_settings.is_project_file(path)


def listen_to(owner: Any, name: str, listener: Callable[..., None], callers: Callers = any_caller) -> None:
    """Wraps a function or method: the listener gets the result and the arguments of each call after it has returned."""
    original = getattr(owner, name)
    heard = getattr(original, "__relive_heard__", ())
    if listener in heard:
        return

    @functools.wraps(original)
    def wrapper(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        if callers(sys._getframe(1).f_code.co_filename):
            noted_settings.listen(name, lambda: listener(result, *args, **options))
        return result

    wrapper.__relive_heard__ = (*heard, listener)  # type: ignore[attr-defined]
    setattr(owner, name, wrapper)


def given_options(argv: Sequence[str] | None) -> set[str]:
    """Returns the names of the options on a command line: `--adam.weight-decay 0.1` gives `adam.weight_decay`."""
    words = sys.argv[1:] if argv is None else [str(word) for word in argv]
    return {
        word.partition("=")[0].lstrip("-").replace("-", "_")
        for word in words
        if word.startswith("--") and not word[2:3].isdigit()
    }
