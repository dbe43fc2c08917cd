"""A fleet of any size makes about the same number of requests."""

from __future__ import annotations

from relive.server.endpoints.send_interval import CANONICAL_PER_S, MAX_INTERVAL_S, OTHERS_PER_S, SendInterval
from relive.store import JournalName


def test_few_senders_are_not_held_back():
    pacing = SendInterval()

    assert max(pacing.pause_s(f"{run:012x}", JournalName(0)) for run in range(16)) < 0.1


def test_many_senders_share_the_request_rate_of_the_server():
    pacing = SendInterval()
    pauses = [(pacing.pause_s(f"{run:012x}", JournalName(rank)), rank) for run in range(400) for rank in range(8)]
    canonical, other = (max(pause for pause, rank in pauses if bool(rank) is is_other) for is_other in (False, True))

    assert 400 / canonical <= CANONICAL_PER_S * 1.01
    assert 2_800 / other <= OTHERS_PER_S * 1.01
    assert canonical < 2


def test_no_sender_waits_so_long_that_it_counts_as_dead():
    pacing = SendInterval()

    assert max(pacing.pause_s(f"{run:012x}", JournalName(1)) for run in range(10_000)) == MAX_INTERVAL_S
