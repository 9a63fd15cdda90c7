"""Tells alarms to a webhook: JSON by POST, in a separate thread, so that a slow one holds nothing up."""

from __future__ import annotations

import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from twinshore.delay.alarms import Event, in_words
from twinshore.fleet import Secret

WAITING_MAX = 1000
TIMES_MAX = 4
PAUSE_S = 1.0


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST arrives as a GET without its body, and its token at whatever host the answer names."""

    def redirect_request(self, *_: object) -> None:
        """None makes the redirect an error."""


class Webhook:
    """`tell` returns at once. What could not be delivered after some tries is said in the log."""

    def __init__(self, url: str, token: Secret, timeout_s: float, log: Callable[[str], None]) -> None:
        self._url, self._token, self._timeout_s, self._log = url, token, timeout_s, log
        self._waiting: queue.Queue[Event | None] = queue.Queue(WAITING_MAX)
        self._closed = threading.Event()
        self._opener = urllib.request.build_opener(NoRedirects)
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
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(timeout=self._timeout_s * 2)
        if self._thread.is_alive():
            self._log(f"the webhook does not keep up; {self._waiting.qsize()} more were not told")

    def _work(self) -> None:
        # The None of `close` wakes it; where there was no room for one there is something else to wake for.
        while not (self._closed.is_set() and self._waiting.empty()):
            event = self._waiting.get()
            if event is not None:
                self._deliver(event)

    def _deliver(self, event: Event) -> None:
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
            with self._opener.open(request, timeout=self._timeout_s):
                return ""
        except urllib.error.HTTPError as error:
            with error:
                return _refusal(error)
        except Exception as error:
            # Whatever the other side or its address makes of it (http.client raises kinds of its own), this thread is
            # the only one that tells alarms: it must live to tell the next.
            return str(error) or type(error).__name__


def _refusal(error: urllib.error.HTTPError) -> str:
    if error.code // 100 != 3:
        return str(error)
    # The path may be a secret, as chat services have it.
    to = urlsplit(error.headers.get("Location", ""))
    where = f"{to.scheme}://{to.netloc}" if to.netloc else "another path"
    return f"it answers {error.code}, a redirect to {where}, which is not followed: set webhook_url to where it leads"


def as_json(event: Event) -> bytes:
    """The body; `text` is what chat services show."""
    key = event.key
    body = {
        "text": f"{event.happening.upper()}: {in_words(event)}",
        "happening": event.happening,
        "link": key.link,
        "kind": key.kind,
        "topic": key.topic,
        "group": key.group,
        "at_ms": event.at_ms,
        "raised_ms": event.raised_ms,
        "sentence": event.sentence,
        "parts": list(event.parts),
    }
    return json.dumps(body).encode()
