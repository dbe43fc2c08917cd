"""A walk whose time is up says what it did not come to, and never leaves out the random generators."""

from __future__ import annotations

import random

from relive.checkpoint.graph.observer import Observer
from relive.checkpoint.graph.roots import Roots


def test_without_time_everything_is_unknown_by_name_but_the_random_generators_are_held():
    observer = Observer()
    things = [[at] for at in range(200)]
    observer.begin(Roots({"things": things}, has_modules=False), elapsed_s=10.0)
    random.random()

    found = observer.observe(Roots({"things": things}, has_modules=False), seconds=-1.0)

    way = found.changes.roots["p|random generators"][0]
    assert found.changes.nodes[way].content is not None
    assert way not in found.changes.unknown
    assert "not reached in time" in found.changes.unknown.values()


def test_what_a_walk_did_not_meet_is_unknown_rather_than_unchanged():
    observer = Observer()
    things = [[[at]] for at in range(200)]
    roots = Roots({f"thing{at}": thing for at, thing in enumerate(things)}, has_modules=False)
    observer.begin(roots, elapsed_s=10.0)
    inner = {way for way, node in observer.start.nodes.items() if "list" in node.kind}

    found = observer.observe(roots, seconds=-1.0)

    held = {way for way in inner if way not in found.changes.unknown}
    assert len(inner) >= 400
    assert len(held) <= 64  # a walk looks at the clock now and then only
