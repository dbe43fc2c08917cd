"""Collections that offload packs to a folder, killed before each of their changes in turn."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from gc_processes import die_at, shown

from relive.store import Home
from relive.store.chunks import Packs
from relive.store.gc import Policy, collect_garbage


def kill_at_every_point(template: Path, folder: Path) -> int:
    """Returns the number of points. After each, all checkpoints are readable, and another collection finishes."""
    folder.mkdir()
    expected, point = shown(Home(template)), 0
    while True:
        home = Home(Path(shutil.copytree(template, tempfile.mkdtemp(dir=folder), dirs_exist_ok=True)))
        policy = Policy(budget_bytes=1, spool=f"{home.path}-spool")
        child = os.fork()
        if not child:
            die_at(point)
            collect_garbage(home, policy)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert shown(home) == expected
        assert not collect_garbage(home, policy).failures
        assert Packs(home.packs).names() == []
        assert shown(home) == expected
        if not os.WIFSIGNALED(status):
            return point
        point += 1


if __name__ == "__main__":
    print(kill_at_every_point(Path(sys.argv[1]), Path(sys.argv[2])))
