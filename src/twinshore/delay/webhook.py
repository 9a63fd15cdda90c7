"""Tells alarms to a webhook: JSON by POST, in a thread of its own, so that a slow one holds nothing up."""

from __future__ import annotations

import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable

from twinshore.delay.alarms import Event
from twinshore.fleet import ConfigError, Secret

WAITING_MAX = 1000
TIMES_MAX = 4
PAUSE_S = 1.0


class Webhook:
    """`tell` returns at once. What could not be delivered after some tries is said in the log."""

    def __init__(self, url: str, token: Secret, timeout_s: float, log: Callable[[str], None]) -> None:
        self._url, self._token, self._timeout_s, self._log = url, token, timeout_s, log
        self._waiting: queue.Queue[Event | None] = queue.Queue(WAITING_MAX)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="webhook", daemon=True)
        self._thread.start()

    def tell(self, event: Event) -> None:
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._log(f"the webhook does not keep up; not told: {event.sentence}")

    def close(self) -> None:
        """Tells what is waiting, once each, and ends."""
        self._closed.set()
        self._waiting.put(None)
        self._thread.join(timeout=self._timeout_s * 2)

    def _work(self) -> None:
        while (event := self._waiting.get()) is not None:
            why = ""
            for number in range(TIMES_MAX):
                why = self._post(event)
                if not why or self._closed.wait(PAUSE_S * 2**number):
                    break
            if why:
                self._log(f"the webhook was not reached ({why}); not told: {event.sentence}")

    def _post(self, event: Event) -> str:
        """Why it did not work; empty when it did."""
        headers = {"Content-Type": "application/json"}
        try:
            if self._token:
                headers["Authorization"] = f"Bearer {self._token.read()}"
            request = urllib.request.Request(self._url, as_json(event), headers, method="POST")
            with urllib.request.urlopen(request, timeout=self._timeout_s):
                return ""
        except (OSError, ConfigError, ValueError) as error:
            return str(error) or type(error).__name__


def as_json(event: Event) -> bytes:
    """The body; `text` is what chat services show."""
    key = event.key
    body = {
        "text": f"{event.happening.upper()}: {event.sentence}",
        "happening": event.happening,
        "link": key.link,
        "kind": key.kind,
        "topic": key.topic,
        "group": key.group,
        "at_ms": event.at_ms,
        "raised_ms": event.raised_ms,
        "sentence": event.sentence,
    }
    return json.dumps(body).encode()
