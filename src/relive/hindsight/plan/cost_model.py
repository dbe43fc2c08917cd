"""Measured costs of replays on this machine, which predict the cost of the next ones."""

from __future__ import annotations

import contextlib
from statistics import median

import msgspec

from relive.errors import Damaged
from relive.hindsight.plan.segments import Costs
from relive.store import Home, read_sealed, write_sealed

FILE = "costs.json"
_READINGS = 7  # the last ones of each kind: one outlier does not move their median
_PACES = 300


class Pace(msgspec.Struct, frozen=True, array_like=True):
    """The time of a script in a replay, divided by its recorded time; `is_shared`: other workers ran beside it."""

    run: str
    is_shared: bool
    pace: float


class CostModel(msgspec.Struct):
    """The measurements of earlier replays in a home."""

    readings: dict[str, list[float]] = {}  # the last ones, by the name of a field of `Costs`
    paces: list[Pace] = []

    @classmethod
    def read(cls, home: Home) -> CostModel:
        """Reads the model of a home; an empty one, which predicts the defaults, if there is none."""
        with contextlib.suppress(OSError, ValueError, Damaged):  # damaged measurements are made again
            return msgspec.json.decode(read_sealed(home.path / FILE), type=cls)
        return cls()

    def write(self, home: Home) -> None:
        with contextlib.suppress(OSError):  # a read-only home keeps the default predictions
            write_sealed(home.path / FILE, msgspec.json.encode(self), durable=False)

    def costs(self, run: str, *, is_shared: bool, is_loaded: bool) -> Costs:
        """Predicts the costs of replaying a run."""
        known = {name: median(self.readings[name]) for name in Costs.__annotations__ if self.readings.get(name)}
        return Costs(**known, pace=self._pace(run, is_shared=is_shared), is_loaded=is_loaded)

    def _pace(self, run: str, *, is_shared: bool) -> float:
        """The pace measured for this run; else that of other runs on this machine."""
        same = [one.pace for one in self.paces if one.run == run and one.is_shared == is_shared]
        of_others = [one.pace for one in self.paces if one.is_shared == is_shared]
        otherwise_shared = [one.pace for one in self.paces if one.run == run]
        for measured in (same, of_others, otherwise_shared):
            if measured:
                return median(measured[-_READINGS:])
        return 1.0

    def add_reading(self, name: str, reading: float) -> None:
        self.readings[name] = [*self.readings.get(name, []), reading][-_READINGS:]

    def add_pace(self, pace: Pace) -> None:
        self.paces = [*self.paces, pace][-_PACES:]
