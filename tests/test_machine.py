"""The processors of this process, not those of the whole machine."""

from __future__ import annotations

import os
import sys

import pytest

from relive.machine import usable_cpu_count


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processors a process may use")
def test_processors_that_a_job_may_not_use_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3, 7, 9})

    assert usable_cpu_count() == 3


def test_without_affinity_all_processors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert usable_cpu_count() == 64

    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpu_count() == 1
