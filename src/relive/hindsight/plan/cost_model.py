"""What replays cost on this machine: measured by those that ran, for the estimates of those to come."""

from __future__ import annotations

import contextlib
from statistics import median

import msgspec

from relive.hindsight.plan.segments import Costs
from relive.store import Home

FILE = "costs.json"
_READINGS = 7  # of each kind, the last ones: their median is not moved by one bad moment
_PACES = 300


class Pace(msgspec.Struct, frozen=True, array_like=True):
    """How long a run's script took in a replay, by what it took then; `is_shared`: others ran beside it."""

    run: str
    is_shared: bool
    pace: float


class CostModel(msgspec.Struct):
    """What earlier replays in a home measured."""

    readings: dict[str, list[float]] = {}  # by the name of what `Costs` holds, the last ones
    paces: list[Pace] = []

    @classmethod
    def read(cls, home: Home) -> CostModel:
        """Nothing, if there were none: what is usual will do."""
        with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
            return msgspec.json.decode((home.path / FILE).read_bytes(), type=cls)
        return cls()

    def write(self, home: Home) -> None:
        with contextlib.suppress(OSError):  # a home that can't be written to gives the usual estimates
            part = home.path / f"{FILE}.part"
            part.write_bytes(msgspec.json.encode(self))
            part.rename(home.path / FILE)

    def costs(self, run: str, *, is_shared: bool, is_loaded: bool) -> Costs:
        """What to expect of a replay of this run."""
        known = {name: median(self.readings[name]) for name in Costs.__annotations__ if self.readings.get(name)}
        return Costs(**known, pace=self._pace(run, is_shared=is_shared), is_loaded=is_loaded)

    def _pace(self, run: str, *, is_shared: bool) -> float:
        """As it was seen for this run; else as it was for others on this machine."""
        own = [one.pace for one in self.paces if one.run == run and one.is_shared == is_shared]
        alike = [one.pace for one in self.paces if one.is_shared == is_shared]
        other_way = [one.pace for one in self.paces if one.run == run]
        for seen in (own, alike, other_way):
            if seen:
                return median(seen[-_READINGS:])
        return 1.0

    def note(self, name: str, reading: float) -> None:
        self.readings[name] = [*self.readings.get(name, []), reading][-_READINGS:]

    def note_pace(self, seen: Pace) -> None:
        self.paces = [*self.paces, seen][-_PACES:]
