"""A running `twinshore serve` whose settings name a secret of each kind: none is in a page, answer, job or log."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.console import PASSWORD, Answer, Browser
from testkit.identity import SmallProvider, small_provider
from twinshore.lab.ports import free_port
from twinshore.server.core.catalogue import Effect
from twinshore.server.pages import PAGES
from twinshore.server.verbs import operations

# By the name of the file or variable that holds it.
SECRETS = {
    name: f"planted-{name}-4711"
    for name in ("cluster", "webhook-path", "webhook-token", "oidc", "proxy-user", "proxy-cluster", "hidden-variable")
}
SETTINGS = """
[store]
url = "sqlite:///{folder}/store.db"
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.east.security]
sasl = "PLAIN"
username = "u"
password_file = "{folder}/cluster"
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
topics = ["orders.*"]
[delay]
webhook_url_file = "{folder}/webhook-path"
webhook_token_file = "{folder}/webhook-token"
webhook_timeout_s = 1
[proxy]
sasl = ["PLAIN"]
users_file = "{folder}/users.toml"
[proxy.credentials.bob]
username = "orders-app"
password_file = "{folder}/proxy-cluster"
[serve]
port = {port}
[serve.oidc]
issuer = "{issuer}"
client_id = "twinshore"
client_secret_file = "{folder}/oidc"
public_url = "http://127.0.0.1:{port}"
default_role = "viewer"
"""
ENDED = ("done", "failed", "cancelled", "unknown", "planned")
# What a job can do to an unreachable cluster within seconds.
ASKED = {
    "status": {},
    "topology": {},
    "link-list": {},
    "delay": {},
    "delay-alarms": {},
    "audit": {},
    "delay-webhook-test": {},
    "proxy-plan": {},
    "switch-plan": {"topics": ["orders"], "to": "west"},
    "link-pause": {"link": "east->west"},
    "mirror-plan": {},
}


class Serving:
    """The processes, and everything that they said."""

    def __init__(self, folder: Path, provider: SmallProvider) -> None:
        self.port, self.log, self.answers = free_port(), folder / "serve.log", list[Answer]()
        for name, secret in SECRETS.items():
            text = f"http://127.0.0.1:1/{secret}" if name == "webhook-path" else secret
            (folder / name).write_text(text, encoding="utf-8")
        users = f'["bob"]\npassword_file = "{folder}/proxy-user"\n'
        (folder / "users.toml").write_text(users, encoding="utf-8")
        file = folder / "twinshore.toml"
        file.write_text(SETTINGS.format(folder=folder, port=self.port, issuer=provider.issuer), encoding="utf-8")
        environment = {**os.environ, "HIDDEN": SECRETS["hidden-variable"]}
        command = [sys.executable, "-m", "twinshore.cli", "serve", "--settings", str(file)]
        with self.log.open("wb") as said:
            self.process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
        self.browser = Browser(f"http://127.0.0.1:{self.port}")

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def first_admin(self) -> None:
        until_s = time.monotonic() + 60
        while not (found := re.search(r"first-admin\?secret=(\S+)", self.said())):
            assert time.monotonic() < until_s and self.process.poll() is None, self.said()
            time.sleep(0.05)
        assert self.browser.post("/first-admin", secret=found[1], name="ada", password=PASSWORD).status == 200
        made = self.browser.submit("/account", "/account/add-token", name="t", role="admin", days="1")
        self.browser.token = made.body.split("data-copy>")[1].split("<")[0]

    def get(self, path: str) -> Answer:
        self.answers.append(self.browser.get(path))
        return self.answers[-1]

    def api(self, method: str, path: str, body: object = None) -> Answer:
        self.answers.append(self.browser.api(method, path, body))
        return self.answers[-1]

    def ended(self, job: str) -> None:
        """Waits for the job, agrees to its plan, and keeps what it printed."""
        until_s, applied = time.monotonic() + 90, False
        while (row := self.api("GET", f"/jobs/{job}").json())["state"] not in ENDED or row["state"] == "planned":
            if row["state"] == "planned" and not applied:
                applied = self.api("POST", f"/jobs/{job}/apply", {"digest": row["digest"]}).status == 202
            assert time.monotonic() < until_s, row
            time.sleep(0.2)
        self.api("GET", f"/jobs/{job}/lines")
        self.get(f"/jobs/{job}")


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with small_provider() as provider:
        found = Serving(tmp_path, provider)
        try:
            yield found
        finally:
            found.process.send_signal(signal.SIGTERM)
            found.process.wait(30)


@pytest.mark.claim("platform", "secrets", "planted secrets are in no page, answer, log or job")
def test_planted_secrets_appear_nowhere(serving: Serving) -> None:
    serving.first_admin()
    jobs = [serving.api("POST", f"/operations/{name}", given).json() for name, given in ASKED.items()]
    assert all("id" in job for job in jobs), jobs
    for job in jobs:
        serving.ended(job["id"])
    states = {row["operation"]: row["state"] for row in serving.api("GET", "/jobs").json()["items"]}
    assert states["delay webhook test"] == "failed" and states["link list"] == "done", states
    for path in (*PAGES, "/do", "/jobs", "/account", "/people", "/device", "/login", "/no-such-page"):
        serving.get(path)
    for one in operations().values():
        serving.get(f"/do/{one.path}")
        if one.rule.effect is not Effect.READS:
            serving.api("POST", f"/operations/{one.path}", {"settings": "/etc/passwd"})
    for path in ("/operations", "/overview", "/snapshots/links", "/me", "/openapi.json"):
        serving.api("GET", path)
    serving.answers.append(Browser(serving.browser.base).get("/login/oidc"))
    assert serving.answers[-1].status == 503, "the provider knows another secret"
    everything = "\n".join([*(f"{one.url} {dict(one.headers)} {one.body}" for one in serving.answers), serving.said()])
    everything += json.dumps([job["plan"] for job in jobs])
    assert [name for name, secret in SECRETS.items() if secret in everything] == []
