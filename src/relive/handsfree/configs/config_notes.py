"""Records settings as args of the run, each once, with where it came from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from relive.errors import ReliveError
from relive.handsfree.configs.config_leaves import settings_of
from relive.record import Driver, open_driver, session
from relive.record.process import warn_once

MAX_ARGS = 1000
_PLAIN_TYPES = (bool, int, float, str, list, type(None))
OVERRIDE = "override"  # the origin of a setting that was given on the command line


class ConfigNotes:
    """The settings that were recorded for the current run."""

    def __init__(self) -> None:
        self.is_on = False  # until a script runs hands-free with the source `config`
        self.is_project_file: Callable[[str], bool] = lambda _path: True
        self._driver: Driver | None = None
        self._noted: dict[str, tuple[Any, str]] = {}  # name → value, origin

    def note_config(self, config: Any, origin: str, overrides: Collection[str] = ()) -> None:
        """Records the settings of a config that a library parsed; `overrides` are names given on the command line."""
        driver = session.place(open_driver).driver
        self.note(driver, ((name, value, _origin(name, origin, overrides)) for name, value in settings_of(config)))

    def note(self, driver: Driver, settings: Iterable[tuple[str, Any, str]]) -> None:
        """Records settings, given as name, value and origin. One that has the same value stays as it is."""
        if not self.is_on:
            return
        if driver is not self._driver:
            self._driver, self._noted = driver, {}
        for name, value, origin in settings:
            if name in self._noted and is_same_setting(self._noted[name][0], value):
                continue
            if name not in self._noted and len(self._noted) >= MAX_ARGS:
                warn_once(
                    "args-left-out",
                    f"the configs of the script have more than {MAX_ARGS} settings; {name} and those after it are not"
                    " recorded, pass those that you compare runs by through relive.arg",
                )
                return
            self._noted[name] = value, origin
            driver.note_arg(name, value, origin=origin)

    def settings(self) -> list[tuple[str, Any, str]]:
        """Returns the settings of the current run, as far as any process can unpickle them: name, value and origin."""
        found = ((name, value, origin) for name, (value, origin) in self._noted.items())
        return [setting for setting in found if type(setting[1]) in _PLAIN_TYPES]

    def listen(self, who: str, listener: Callable[..., None], *args: Any) -> None:
        """Calls a listener for a config library; an unexpected version of the library must not disturb the script."""
        if not self.is_on:
            return
        try:
            listener(*args)
        except ReliveError:
            raise  # a replay that diverged
        except Exception as error:  # noqa: BLE001 - the user's training must go on
            warn_once(
                "config-lost",
                f"{who}: {type(error).__name__}: {error}; its settings are not recorded, pass them through relive.arg",
            )


def _origin(name: str, origin: str, overrides: Collection[str]) -> str:
    parts = name.split(".")
    is_given = any(".".join(parts[:end]) in overrides for end in range(1, len(parts) + 1))
    return OVERRIDE if is_given else origin


def is_same_setting(one: Any, other: Any) -> bool:
    """Whether two settings have the same value and type."""
    return type(one) is type(other) and repr(one) == repr(other)  # `nan` is the same setting as `nan`


noted_settings = ConfigNotes()
