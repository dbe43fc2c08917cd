"""`relive.checkpointing` without `with` takes no checkpoints, and says so at the user's line."""

from __future__ import annotations


def test_a_block_that_is_not_entered_is_told(script):
    said = script("""
        import relive
        relive.checkpointing(every=1)
        for epoch in relive.loop("epoch", range(3)):
            relive.log("n", epoch)
    """).stderr

    assert said.count("[checkpointing-not-entered]") == 1
    assert "train.py:2" in said


def test_a_block_that_is_entered_says_nothing(script):
    said = script("""
        import relive
        with relive.checkpointing(every=1):
            for epoch in relive.loop("epoch", range(3)):
                relive.log("n", epoch)
        block = relive.checkpointing(every=1)
        with block:
            relive.log("m", 1)
    """).stderr

    assert said == ""
