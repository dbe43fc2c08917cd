"""Whose question is next, and which one makes room."""

from __future__ import annotations

from relive.server.questions.reader_shares import HEAVY_S, LONG_CPU_S, LONG_S, ReaderShares, ReaderUse, Reading


def shares(*running: Reading, use: ReaderUse | None = None, readers: int = 4) -> ReaderShares:
    return ReaderShares(readers, use or ReaderUse(), running)


def short(who: str) -> Reading:
    return Reading(who, 0.01, 0.1)


def long(who: str, took_s: float = LONG_S) -> Reading:
    return Reading(who, LONG_CPU_S, took_s)


def used(*ended: Reading) -> ReaderUse:
    use = ReaderUse()
    for one in ended:
        use.add(one)
    return use


def test_a_thousand_short_questions_do_not_make_a_token_wait():
    use = used(*[Reading("ada", 0.1, 1.0)] * 1_000)

    assert shares(use=use).choose_next(["ada"]) == "ada"
    assert shares(short("ada"), use=use).choose_next(["ada"]) == "ada"


def test_who_has_used_least_is_next():
    assert shares(use=used(short("ada"), short("ada"), short("bob"))).choose_next(["ada", "bob"]) == "bob"


def test_a_token_has_half_of_the_readers_at_most():
    assert shares(short("ada"), short("ada")).choose_next(["ada"]) is None
    assert shares(short("ada"), short("ada")).choose_next(["ada", "bob"]) == "bob"
    assert shares(readers=1).choose_next(["ada"]) == "ada"


def test_the_only_asker_of_an_open_server_has_all_readers():
    assert shares(long(""), long(""), long("")).choose_next([""]) == ""


def test_tokens_with_long_questions_share_a_quarter_of_the_readers_however_many_they_are():
    people = ["eve", "mallory", "trudy"]
    use = used(*(long(who, HEAVY_S + 1) for who in people))

    assert shares(long("eve"), use=use).choose_next(["eve"]) is None
    assert shares(long("eve"), use=use).choose_next(["mallory", "trudy"]) is None
    assert shares(long("eve"), use=use).choose_next(["trudy", "ada"]) == "ada"
    assert shares(long("eve"), use=use, readers=8).choose_next(["trudy"]) == "trudy"


def test_a_long_question_that_still_runs_counts():
    assert shares(long("eve", HEAVY_S + 1)).choose_next(["eve"]) is None


def test_long_questions_keep_half_of_the_readers_and_make_room_with_the_others():
    use = used(long("mallory"))

    assert shares(long("eve"), long("mallory"), short("ada"), short("ada"), use=use).choose_end() is None
    assert (
        shares(long("eve"), long("mallory"), long("eve"), short("ada"), use=used(long("mallory", 9.0))).choose_end()
        == 1
    )
    assert shares(long("eve"), readers=1).choose_end() == 0


def test_nobody_makes_room_while_a_reader_is_free():
    assert shares(long("eve"), long("eve"), long("mallory")).choose_end() is None
