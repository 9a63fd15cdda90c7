"""What a webhook is told, in which words, and what is said of one that does not listen."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from testkit.errors import raises
from testkit.log_lines import LogLines
from twinshore.config.errors import ConfigError
from twinshore.config.model import Secret
from twinshore.config.sections.delay import DelaySettings
from twinshore.config.settings import parse_settings
from twinshore.monitoring.core.alerts import AlarmEvent, AlarmKey, AlarmKind, AlarmTransition, AlertCondition
from twinshore.monitoring.notify import Webhook, open_alarm_manager
from twinshore.state.store import open_store

LINK = "east->west"
KEY = AlarmKey(LINK, AlarmKind.RECOVERY_POINT, "orders")


class Hearing(HTTPServer):
    """Refuses the first `refuses` posts."""

    def __init__(self, refuses: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), Post)
        self.refuses = refuses
        self.heard: list[tuple[str, dict[str, object]]] = []


class Post(BaseHTTPRequestHandler):
    server: Hearing

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        well = self.server.refuses <= 0
        self.server.refuses -= 1
        if well:
            self.server.heard.append((self.headers.get("Authorization", ""), body))
        self.send_response(200 if well else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not worth a line."""


@contextmanager
def hearing(refuses: int = 0) -> Iterator[Hearing]:
    with Hearing(refuses) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


EVENT = AlarmEvent(AlarmTransition.RAISED, KEY, 5, 5, "orders are late")


def delay(*lines: str) -> DelaySettings:
    return parse_settings("\n".join(["[delay]", *lines, ""]), name="here.toml", env={}).delay


def test_a_url_that_is_a_secret_is_kept_elsewhere_and_never_shown(tmp_path: Path) -> None:
    kept = tmp_path / "url"
    kept.write_text("https://chat.example.org/hooks/s3cr3t\n")
    rules = delay(f'webhook_url_file = "{kept}"')
    assert rules.hook_url == "https://chat.example.org/hooks/s3cr3t"
    for wrong in ("chat.example.org/s3cr3t", "https://[s3cr3t/", ""):
        kept.write_text(wrong)
        with raises(ConfigError, "config.webhook-not-url") as raised:
            rules.hook_url  # noqa: B018
        assert "s3cr3t" not in raised.value.message
    with pytest.raises(ConfigError, match="webhook_url, webhook_url_env and webhook_url_file: one of them"):
        delay('webhook_url = "https://a/b"', 'webhook_url_env = "HOOK"')
    assert delay().hook_url == ""


def test_the_webhook_is_told_in_json_with_its_token(tmp_path: Path, log_lines: LogLines) -> None:
    (tmp_path / "token").write_text("a token\n")
    with hearing() as server:
        hook = Webhook(f"http://127.0.0.1:{server.server_port}/x", Secret(file=str(tmp_path / "token")), 5)
        hook.tell(EVENT)
        hook.close()
    ((token, body),) = server.heard
    assert token == "Bearer a token"
    assert body["text"] == "RAISED: orders are late"
    assert (body["link"], body["kind"], body["topic"]) == (LINK, "recovery point", "orders")
    assert log_lines == []


def test_a_webhook_that_refuses_once_is_asked_again_and_one_that_is_away_is_said(log_lines: LogLines) -> None:
    heard = threading.Event()
    with hearing(refuses=1) as server:
        hook = Webhook(f"http://127.0.0.1:{server.server_port}/x", Secret(), 5)
        hook.tell(EVENT)
        while not server.heard and not log_lines:
            heard.wait(0.02)
        hook.close()
        assert len(server.heard) == 1
    away = Webhook(f"http://127.0.0.1:{server.server_port}/x", Secret(), 1)
    away.tell(EVENT)
    away.close()
    assert len(log_lines) == 1
    assert "orders are late" in log_lines[0]


def test_alarms_go_by_other_settings_while_they_run(tmp_path: Path, log_lines: LogLines) -> None:
    """A URL that cannot be read here leaves the one before in force."""
    labels = 'webhooks.lost.url_file = "/nowhere/url"\nwebhooks.duty.url = "http://127.0.0.1:{}/duty"'
    with ExitStack() as stack:
        first, second = stack.enter_context(hearing()), stack.enter_context(hearing())
        store = stack.enter_context(open_store(f"sqlite:///{tmp_path}/store.db"))
        url = f'webhook_url = "http://127.0.0.1:{first.server_port}/x"'
        known = labels.format(second.server_port)
        alarms = open_alarm_manager(delay(url, known), store, stack)

        def says(link: str, *servers: Hearing) -> None:
            key = AlarmKey(link, AlarmKind.RECOVERY_POINT, "orders")
            alarms.judge([AlertCondition(key, True, "late")], 1_000)
            until_s = time.monotonic() + 10
            while not all(server.heard for server in servers) and time.monotonic() < until_s:
                time.sleep(0.02)
            told = [bool(server.heard) for server in (first, second)]
            first.heard.clear()
            second.heard.clear()
            assert told == [first in servers, second in servers]

        says("a->b", first)
        alarms.obey(delay(url, known, 'webhook = "duty"'))
        says("a->c", second)
        alarms.obey(delay(url, known, 'webhook = "lost"'))
        assert len(log_lines) > 0
        says("a->d", second)
        alarms.obey(delay(url, known, 'quiet = ["00:00-00:10"]'))
        says("a->e")
        alarms.obey(delay(known, "rise_s = 60.0"))
        says("a->f")
        alarms.obey(delay(url, known))
        says("a->g", first)
