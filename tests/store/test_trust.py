"""Whose code may run: own homes, what the user trusts, and fetched runs only by themselves."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from relive.errors import ReliveError, Untrusted
from relive.store import (
    Home,
    describe_origin,
    find_origin,
    is_trusted,
    listed,
    require_trust,
    revoke_trust,
    trust_home,
    trust_server,
    trusted_list,
)
from relive.store.trust import record_origin

URL = "http://team:5005"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "relive"


@pytest.fixture
def place(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def fetched(place: Home) -> str:
    run = place.new_run()
    record_origin(place.run_folder(run), URL)
    return run


def test_a_fetched_run_is_not_trusted_because_its_home_is(place: Home, fetched: str) -> None:
    own = place.new_run()

    assert is_trusted(place)
    assert is_trusted(place, own)
    assert not is_trusted(place, fetched)
    trust_home(place)
    assert not is_trusted(place, fetched)
    with pytest.raises(Untrusted, match=f"came from {URL}.*relive trust --run {fetched}"):
        require_trust(place, fetched, doing="a replay")
    assert URL in describe_origin(place, fetched)
    assert not describe_origin(place, own)


def test_a_fetched_run_is_trusted_by_itself_or_by_its_server(place: Home, fetched: str) -> None:
    trust_home(place, fetched)
    by_itself = is_trusted(place, fetched)
    revoke_trust(listed(place, run=fetched))
    trust_server(URL)

    assert by_itself
    assert is_trusted(place, fetched)
    assert [str(one) for one in trusted_list()] == [f"runs fetched from {URL}"]
    assert revoke_trust(listed(server=URL))
    assert not is_trusted(place, fetched)
    assert not revoke_trust(listed(server=URL))


def test_a_damaged_origin_is_no_origin_of_ones_own(place: Home, fetched: str) -> None:
    path = place.run_folder(fetched) / "origin"
    path.write_bytes(path.read_bytes().replace(b"team", b"mine"))

    found = find_origin(place.run_folder(fetched))

    assert found is not None
    assert found.server == "another machine"
    assert not is_trusted(place, fetched)


@pytest.mark.parametrize("word", ["*", URL, f"/elsewhere:{URL}"])
def test_the_environment_can_trust(place: Home, fetched: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIVE_TRUST", word)

    assert is_trusted(place, fetched)


def test_only_the_user_can_read_the_key_and_the_list(place: Home, fetched: str, state: Path) -> None:
    trust_home(place, fetched)

    assert {path.name: path.stat().st_mode & 0o777 for path in state.iterdir()} == {"key": 0o600, "trusted.json": 0o600}


def test_a_home_that_was_not_empty_is_not_ones_own(tmp_path: Path) -> None:
    home = Home(tmp_path / "sent")
    (home.path / "chunks").mkdir(parents=True)
    home.create()

    assert not is_trusted(home)
    assert is_trusted(Home(_empty(tmp_path / "made-by-docker")))


def _empty(folder: Path) -> Path:
    folder.mkdir()
    Home(folder).create()
    return folder


def test_a_list_that_cannot_be_written_says_what_to_do(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")

    with pytest.raises(ReliveError, match="RELIVE_TRUST"):
        trust_home(place)


def test_a_file_system_without_hard_links_has_homes_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **_how: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)

    assert is_trusted(Home(_empty(tmp_path / "on-a-stick")))
