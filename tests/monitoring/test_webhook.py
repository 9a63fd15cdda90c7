"""Webhooks that misbehave: none of them may keep the next alarm from being told, or learn a token not meant for it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest

from testkit.log_lines import LogLines
from twinshore.config.model import Secret
from twinshore.monitoring.core.alerts import AlarmEvent, AlarmKey, AlarmKind, AlarmTransition
from twinshore.monitoring.notify import QUEUED_EVENTS_MAX, Webhook

GARBAGE = b"what do you want?\r\n\r\n"
WELL = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
EVENT = AlarmEvent(
    AlarmTransition.RAISED, AlarmKey("east->west", AlarmKind.RECOVERY_POINT, "orders"), 5, 5, "orders are late"
)


class Answering:
    """Answers each connection with the next of `answers`, the last one again and again; keeps what was asked."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self._answers = list(answers)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.asked: list[bytes] = []
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._socket.accept()
                with line, suppress(OSError):
                    line.settimeout(5)
                    self.asked.append(_request(line))
                    line.sendall(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])

    def close(self) -> None:
        self._socket.close()


def _request(line: socket.socket) -> bytes:
    """The whole of one: a socket that is closed on unread bytes is reset, and its answer lost."""
    asked = b""
    while b"\r\n\r\n" not in asked or not asked.rstrip().endswith(b"}"):
        part = line.recv(65536)
        if not part:
            break
        asked += part
    return asked


@contextmanager
def answering(*answers: bytes) -> Iterator[Answering]:
    server = Answering(answers)
    try:
        yield server
    finally:
        server.close()


def test_after_an_answer_that_is_no_http_the_next_alarm_is_told(
    monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    monkeypatch.setattr("twinshore.monitoring.notify.DELIVERY_RETRY_DELAY_S", 0.01)
    with answering(*[GARBAGE] * 4, WELL) as server:
        hook = Webhook(f"http://127.0.0.1:{server.port}/x", Secret(), 5)
        hook.tell(EVENT._replace(sentence="the first"))
        deadline = time.monotonic() + 10
        while not log_lines and time.monotonic() < deadline:
            time.sleep(0.01)
        hook.tell(EVENT._replace(sentence="the second"))
        hook.close()
    assert len(log_lines) == 1
    assert "not told: the first" in log_lines[0]
    assert b"the second" in server.asked[-1]
    assert len(server.asked) == 5


def test_an_address_that_no_request_can_have_is_said(log_lines: LogLines) -> None:
    hook = Webhook("http://127.0.0.1:1/a path\twith blanks", Secret(), 1)
    hook.tell(EVENT)
    hook.close()
    assert len(log_lines) == 1
    assert "control characters" in log_lines[0]


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_the_token_goes_nowhere_else(
    code: int, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "secret")
    with answering(WELL) as other:
        to = f"HTTP/1.1 {code} Moved\r\nLocation: http://127.0.0.1:{other.port}/hooks/secret-path\r\n".encode()
        with answering(to + b"Content-Length: 0\r\nConnection: close\r\n\r\n") as server:
            hook = Webhook(f"http://127.0.0.1:{server.port}/x", Secret(env="HOOK_TOKEN"), 5)
            hook.tell(EVENT)
            hook.close()
        assert other.asked == []
    assert len(server.asked) == 1
    assert len(log_lines) == 1
    assert f"it answers {code}, a redirect to http://127.0.0.1:{other.port}, which is not followed" in log_lines[0]
    assert "secret-path" not in log_lines[0]
    assert "not told: orders are late" in log_lines[0]


def test_closing_does_not_wait_for_a_webhook_that_never_answers(log_lines: LogLines) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        hook = Webhook(f"http://127.0.0.1:{mute.getsockname()[1]}/x", Secret(), 0.2)
        for _ in range(QUEUED_EVENTS_MAX + 2):
            hook.tell(EVENT)
        closing = threading.Thread(target=hook.close, daemon=True)
        closing.start()
        closing.join(timeout=10)
        assert not closing.is_alive()
    hook._thread.join(timeout=20)  # it tells what is left to the closed port
    assert any("more were not told" in line for line in log_lines)
