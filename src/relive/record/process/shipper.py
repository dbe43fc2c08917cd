"""A thread that sends a run to the server while it is recorded. Training never waits for it; no data is lost."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from relive.errors import ReliveError
from relive.record.process.user_warnings import warn_once
from relive.store import Home, JournalName
from relive.store.sync import RunShipment, ServerClient, ServerUnreachable, has_ended, record_sent

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
ANSWER_S = 20.0


class Shipper:
    """Sends the growing journals of one rank of a run, and the chunks they name."""

    def __init__(self, home: Home, run: str, rank: int, *, url: str, token: str, every_s: float) -> None:
        # Imported here, not on the thread: a child forked during an import would wait for it forever.
        import xxhash  # noqa: F401
        import zstandard  # noqa: F401

        self._remote = ServerClient(url, token, response_timeout_s=ANSWER_S)
        self._shipment = RunShipment(home, run, self._remote, rank=rank)
        self._home = home
        self._every_s = max(every_s, 0.05)
        self._deadline: float | None = None  # set when the run has ended
        self._patience_s = 0.0
        self._gave_up = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name="relive-ship", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, wait_s: float) -> None:
        """Sends the rest after the journal is closed, for at most `wait_s` seconds."""
        self._patience_s, self._deadline = wait_s, time.monotonic() + wait_s
        self._wake.set()
        self._thread.join(wait_s + 0.1)
        if self._gave_up:
            return
        if not self._shipment.is_done:
            url = self._remote.url
            warn_once("not-all-sent", f"{url} does not have all of this run yet; `relive sync` sends the rest")
        elif self._shipment.is_whole:
            record_sent(self._home, self._shipment.run, self._remote.url)

    def _work(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # noqa: BLE001 - the user's training must go on
            self._gave_up = True
            reason = str(error) if isinstance(error, ReliveError) else f"{type(error).__name__}: {error}"
            warn_once("sending-stopped", f"{reason}; this run is recorded locally; `relive sync` sends it later")
        self._remote.close()

    def _send_all(self) -> None:
        pause_s, answered_at = 0.0, time.monotonic()
        while self._deadline is None or time.monotonic() < self._deadline:
            has_ended = self._deadline is not None
            try:
                more = self._shipment.step(_is_final if has_ended else _is_not_final)
            except ServerUnreachable as error:
                if has_ended and time.monotonic() - answered_at > self._patience_s:  # it was down long before the end
                    return
                pause_s = _next_pause_s(pause_s, error.retry_after_s)
                self._wait(pause_s)
                continue
            pause_s, answered_at = 0.0, time.monotonic()
            if has_ended and not more:
                return
            if not more:
                self._wait(max(self._every_s, self._shipment.pause_s))

    def _wait(self, pause_s: float) -> None:
        if self._deadline is not None:  # the event is set already and would not block
            time.sleep(min(pause_s, 0.2))
        else:
            self._wake.wait(pause_s)


def _is_final(name: JournalName, path: Path) -> bool:
    """Whether a journal is complete: that of this process is closed, a child may still be writing."""
    return not name.process or has_ended(name, path)


def _is_not_final(_name: JournalName, _path: Path) -> bool:
    return False


def _next_pause_s(pause_s: float, retry_after_s: float | None) -> float:
    """Returns twice the last pause, or what the server asked for, with jitter so that clients do not synchronize."""
    pause_s = min(max(2 * pause_s, FIRST_PAUSE_S, retry_after_s or 0.0), LONGEST_PAUSE_S)
    return pause_s * random.SystemRandom().uniform(0.75, 1.0)  # does not touch the user's random state
