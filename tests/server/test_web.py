"""Pages and API over HTTP, with a real store: who gets what, logins, forms, a store that is away."""

from __future__ import annotations

import http.server
import json
import logging
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.console import PASSWORD, Browser, first_admin, person, web_process
from testkit.errors import raises
from tests.cli.test_interrupted import command
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.settings import parse_settings
from twinshore.kafka.clock import wall_ms
from twinshore.runtime.process import INTERRUPTED_EXIT_CODE, STOPPED_MESSAGE
from twinshore.server.accounts import Accounts
from twinshore.server.api import openapi
from twinshore.server.core.catalogue import Role
from twinshore.server.core.jobs import JobPlan, planned
from twinshore.server.pages import PAGES
from twinshore.server.remote import Platform, keep_token, log_out, read_tokens, run_command
from twinshore.server.serve import print_admin_link
from twinshore.server.verbs import operations
from twinshore.state.core.platform_values import JobState
from twinshore.state.core.values import AlarmRow, AuditRow
from twinshore.state.platform import JobFilter
from twinshore.state.store import Store, open_store

ADMIN_PAGES = {"/people"}
MORE_PAGES = ["/do", "/jobs", "/account", "/people", "/device"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def base(store: Store) -> Iterator[str]:
    with web_process(store) as address:
        yield address


@pytest.fixture
def admin(store: Store, base: str) -> Browser:
    return first_admin(store, base)


def test_nobody_sees_anything_without_a_login(base: str) -> None:
    browser = Browser(base)
    for path in [*PAGES, *MORE_PAGES, "/do/link-pause", "/links/a->b", "/jobs/x"]:
        found = browser.get(path.replace(">", "%3E"), follow=False)
        assert found.status == 303 and found.headers["location"].startswith("/login?next="), path
        assert browser.get(path.replace(">", "%3E"), {"X-Fragment": "1"}).status == 401
    for path in ("/operations", "/overview", "/jobs", "/snapshots/links", "/me"):
        assert browser.api("GET", path).status == 401, path


def test_the_first_admin_is_made_once(store: Store, base: str) -> None:
    secret = Accounts(store).first_admin_secret()
    assert secret
    one, other = Browser(base), Browser(base)
    refused = one.post("/first-admin", secret=secret, name="ada", password="short")
    assert refused.status == 400 and 'value="ada"' in refused.body
    assert one.post("/first-admin", secret=secret, name="ada", password=PASSWORD).status == 200
    assert one.get("/people").status == 200
    assert other.get(f"/first-admin?secret={secret}").status == 403
    assert other.post("/first-admin", secret=secret, name="eve", password=PASSWORD).status == 401
    assert Accounts(store).first_admin_secret() is None


@pytest.mark.claim(
    "platform", "roles", "every page and every operation for every role: allowed or refused as the table says"
)
def test_each_page_and_operation_for_each_role(admin: Browser) -> None:
    """The whole table: what a role may see and ask, and what is refused to it."""
    for role in Role:
        browser = person(admin, f"p-{role}", role)
        for path in [*PAGES, *MORE_PAGES]:
            wanted = 403 if path in ADMIN_PAGES and role is not Role.ADMIN else 200
            assert browser.get(path).status == wanted, (role, path)
        for one in operations().values():
            may = role.covers(one.rule.role)
            assert browser.get(f"/do/{one.path}").status == (200 if may else 403), (role, one.name)
            # Without what the operation needs: refused for the role first, else for the value.
            asked = browser.api("POST", f"/operations/{one.path}", {"no such": 1})
            assert asked.status == (400 if may else 403), (role, one.name, asked.body)
            token = browser.get("/account").field("csrf")
            form = browser.post(f"/do/{one.path}", csrf=token, none="1")
            needs = any(parameter.is_required for parameter in one.parameters)
            assert form.status == (403 if not may else 400 if needs else 200), (role, one.name)


def test_a_form_without_its_token_or_of_another_site_changes_nothing(store: Store, admin: Browser) -> None:
    token = admin.get("/do/link-list").field("csrf")
    assert admin.post("/do/link-list").status == 403
    assert admin.post("/do/link-list", csrf="x" * 32).status == 403
    assert admin.post("/do/link-list", {"Sec-Fetch-Site": "cross-site"}, csrf=token).status == 403
    assert admin.post("/do/link-list", {"Origin": "https://evil.example"}, csrf=token).status == 403
    assert store.jobs.page(JobFilter()) == ()
    assert admin.post("/do/link-list", {"Sec-Fetch-Site": "same-origin"}, csrf=token).status == 200


def test_a_login_has_a_session_of_its_own(admin: Browser, base: str) -> None:
    """Whoever gave a browser a cookie before its login does not know the one after it."""
    person(admin, "bob", "viewer")
    browser = Browser(base)
    browser.send("GET", "/login", None, {"Cookie": "twinshore=planted"})
    found = browser.send(
        "POST", "/login", f"name=bob&password={PASSWORD}".encode(), {"Cookie": "twinshore=planted"}, follow=False
    )
    cookie = found.headers["set-cookie"]
    assert found.status == 303 and "twinshore=planted" not in cookie
    assert "httponly" in cookie.lower() and "samesite=strict" in cookie.lower()
    assert Browser(base).get("/", {"Cookie": "twinshore=planted"}, follow=False).status == 303


def test_where_a_login_leads_is_a_page_of_this_site(admin: Browser, base: str) -> None:
    person(admin, "bob", "viewer")
    for wanted in ("https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"):
        body = f"name=bob&password={PASSWORD}&next={wanted}".encode()
        assert Browser(base).send("POST", "/login", body, follow=False).headers["location"] == "/"
    body = f"name=bob&password={PASSWORD}&next=/topics".encode()
    assert Browser(base).send("POST", "/login", body, follow=False).headers["location"] == "/topics"


def test_logging_out_and_being_disabled_end_at_once(admin: Browser) -> None:
    bob = person(admin, "bob", "operator")
    other = Browser(bob.base)
    assert other.log_in("bob").status == 200
    assert other.submit("/account", "/logout").url.endswith("/login")
    assert other.get("/", follow=False).status == 303
    assert bob.get("/").status == 200, "another session goes on"
    admin.submit("/people", "/people/change", name="bob", enabled="0")
    assert bob.get("/", follow=False).status == 303
    assert bob.api("GET", "/me").status == 401
    assert Browser(bob.base).log_in("bob").status == 401


def test_a_token_loses_what_its_person_loses(admin: Browser) -> None:
    bob = person(admin, "bob", "operator")
    assert bob.api("GET", "/me").json() == {"name": "bob", "role": "operator", "by": "token test"}
    admin.submit("/people", "/people/change", name="bob", role="viewer")
    assert bob.api("GET", "/me").json()["role"] == "viewer"
    assert bob.api("POST", "/operations/link-pause", {"link": "a->b"}).status == 403
    found = bob.submit("/account", "/account/add-token", name="more", role="admin", days="1")
    assert "viewer" in found.fault and "admin" in found.fault
    digest = bob.get("/account").field("digest")
    bob.submit("/account", "/account/end-token", digest=digest)
    assert bob.api("GET", "/me").status == 401


def test_nobody_changes_itself(admin: Browser) -> None:
    assert admin.submit("/people", "/people/change", name="ada", enabled="0").status == 409
    assert admin.get("/people").status == 200


def test_wrong_passwords_make_a_person_wait(admin: Browser, base: str) -> None:
    person(admin, "bob", "viewer")
    browser = Browser(base)
    statuses = [browser.log_in("bob", "wrong password here").status for _ in range(7)]
    assert statuses == [401] * 7
    refused, other = browser.log_in("bob"), browser.log_in("bert", "wrong password here")
    assert (refused.status, refused.fault) == (other.status, other.fault), "the right one waits, and tells no name"


def test_one_address_cannot_try_many_names(admin: Browser, base: str) -> None:
    assert admin.get("/").status == 200
    browser = Browser(base)
    statuses = [browser.log_in(f"name-{number}", "wrong password here").status for number in range(32)]
    assert statuses[0] == 401 and statuses[-1] == 429


def test_forwarded_addresses_are_believed_from_our_proxies_alone(store: Store) -> None:
    for networks, last in (((), 429), (("127.0.0.0/8",), 401)):
        with web_process(store, behind_proxy=networks) as base:
            browser = Browser(base)
            body = b"name=nobody&password=wrong"
            for number in range(32):
                header = {"X-Forwarded-For": f"10.9.{len(networks)}.{number}"}
                found = browser.send("POST", "/login", body, header)
            assert found.status == last


def test_cookies_are_for_tls_alone_where_there_is_tls(store: Store, admin: Browser) -> None:
    person(admin, "bob", "viewer")
    body = f"name=bob&password={PASSWORD}".encode()
    with web_process(store, behind_proxy=("127.0.0.0/8",)) as base:
        sent = Browser(base).send("POST", "/login", body, {"X-Forwarded-Proto": "https"}, follow=False)
        assert "secure" in sent.headers["set-cookie"].lower()
    with web_process(store) as base:
        sent = Browser(base).send("POST", "/login", body, {"X-Forwarded-Proto": "https"}, follow=False)
        assert "secure" not in sent.headers["set-cookie"].lower()


def test_every_answer_has_its_safety_headers(admin: Browser) -> None:
    for path in ("/", "/login", "/no-such-page", "/static/console.css", "/do/switch-run"):
        headers = admin.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'"), path
        assert headers["x-content-type-options"] == "nosniff"
    body = admin.get("/do/switch-run").body
    assert "<script>" not in body and "style=" not in body and "onclick" not in body


def test_names_of_clusters_and_people_cannot_become_markup(admin: Browser) -> None:
    evil = "<img src=x onerror=alert(1)>"
    found = admin.submit("/do/link-pause", "/do/link-pause", link=evil)
    assert evil not in found.body and "&lt;img" in found.body
    assert evil not in admin.get("/topics?search=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E").body


def test_a_page_that_has_not_changed_is_not_sent_again(admin: Browser) -> None:
    first = admin.get("/", {"X-Fragment": "1"})
    assert first.status == 200 and first.body.startswith('<div id="live">')
    again = admin.get("/", {"X-Fragment": "1", "If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, "")


@pytest.mark.claim(
    "platform",
    "store-away",
    "while the store is away, pages show what was known with its age, and every change is refused",
)
def test_while_the_store_is_away_pages_say_so_and_nothing_is_changed(tmp_path: Path, admin: Browser) -> None:
    bob = person(admin, "bob", "operator")
    assert bob.get("/topics").status == 200
    token = bob.get("/do/link-list").field("csrf")
    file, aside = tmp_path / "store.db", tmp_path / "aside.db"
    file.rename(aside)
    try:
        found = bob.get("/topics")
        assert found.status == 200 and "The store does not answer: this is what was known" in found.text
        assert bob.get("/groups").status == 503, "never seen"
        assert bob.post("/do/link-list", csrf=token).status == 503
        assert bob.api("GET", "/me").status == 503
        assert Browser(bob.base).log_in("bob").status == 503
    finally:
        shutil.move(aside, file)
    assert "does not answer" not in bob.get("/topics").text


def test_requests_that_are_too_long_or_broken_are_refused(admin: Browser) -> None:
    bob = person(admin, "bob", "operator")
    assert bob.send("POST", "/login", b"x" * 70_000).status == 413
    sent = {"Authorization": f"Bearer {bob.token}"}
    for body in (b"{", b"[]", b'"x"', b"\xff"):
        assert bob.send("POST", "/api/v1/operations/link-list", body, sent).status == 400, body
    half = b'{"%s": "\\ud800"}'
    assert bob.send("POST", "/api/v1/operations/groups", half % b"group", sent).status == 400
    job = bob.api("POST", "/operations/link-pause", {"link": "a->b"}).json()["id"]
    assert bob.send("POST", f"/api/v1/jobs/{job}/apply", half % b"reason", sent).status == 400
    for change in ("apply", "approve"):
        assert bob.api("POST", f"/jobs/{job}/{change}", {}).json()["values"]["name"] == "digest"
    assert bob.api("GET", "/snapshots/nothing").status == 404
    assert bob.api("GET", "/snapshots/links?limit=1000").status == 400
    assert bob.api("GET", "/snapshots/links?after=x").status == 400
    assert bob.api("GET", "/snapshots/links?after=").status == 400
    assert bob.api("GET", "/jobs?state=odd").status == 400
    assert bob.api("GET", "/jobs?state=").status == 400
    assert bob.api("GET", "/nothing").status == 404
    assert bob.api("GET", "/jobs/nothing").json()["code"] == "server.no-job"


def test_a_request_that_is_sent_again_makes_no_second_job(admin: Browser) -> None:
    bob, eve = person(admin, "bob", "operator"), person(admin, "eve", "operator")
    key = {"Idempotency-Key": "k1"}
    one = bob.api("POST", "/operations/link-pause", {"link": "a->b"}, **key).json()
    assert bob.api("POST", "/operations/link-pause", {"link": "a->b"}, **key).json()["id"] == one["id"]
    assert eve.api("POST", "/operations/link-pause", {"link": "a->b"}, **key).json()["id"] != one["id"]
    other = bob.api("POST", "/operations/link-pause", {"link": "b->a"}, **key)
    assert (other.status, other.json()["code"]) == (409, "server.key-used")
    assert bob.api("POST", "/operations/link-pause", {"link": "a->b"}, **{"Idempotency-Key": "k" * 201}).status == 400
    assert (one["state"], one["command"]) == (JobState.PLANNING, "twinshore link pause 'a->b'")


def test_a_job_is_seen_by_those_who_may_ask_it(admin: Browser) -> None:
    bob, eve = person(admin, "bob", "operator"), person(admin, "eve", "viewer")
    job = bob.api("POST", "/operations/link-pause", {"link": "a->b"}).json()["id"]
    assert eve.api("GET", f"/jobs/{job}").status == 403
    assert eve.api("GET", f"/jobs/{job}/lines").status == 403
    assert eve.get(f"/jobs/{job}").status == 403
    assert [one["id"] for one in eve.api("GET", "/jobs").json()["items"]] == []
    assert eve.api("POST", f"/jobs/{job}/cancel", {}).status == 403
    assert bob.api("POST", f"/jobs/{job}/cancel", {}).json()["state"] == JobState.CANCELLED
    assert bob.api("POST", f"/jobs/{job}/cancel", {}).status == 409


def test_the_page_of_alarms_leads_to_what_may_be_said_of_them(store: Store, admin: Browser) -> None:
    row = store.delay.raise_alarm(AlarmRow("a->b", "stopped", "orders", "", "orders is stopped", 1))
    found = admin.get("/alarms").body
    for verb in ("acknowledge", "silence"):
        assert f'href="/do/delay-alarms-{verb}?number={row.id}"' in found
        assert f'value="{row.id}"' in admin.get(f"/do/delay-alarms-{verb}?number={row.id}").body
    assert 'href="/do/delay-webhook-test"' in found
    assert store.delay.mark_alarm(row.id, {"acknowledged_by": "ada", "reason": "known"}, AuditRow(1, *"abcdefg"))
    assert "acknowledged by ada: known" in admin.get("/alarms").text
    store.delay.clear_alarm(row.id, 9)
    assert "/do/delay-alarms-" not in admin.get("/alarms").body


def test_another_role_lets_no_disabled_person_in(admin: Browser) -> None:
    bob = person(admin, "bob", "operator")
    admin.submit("/people", "/people/change", name="bob", enabled="0")
    admin.submit("/people", "/people/change", name="bob", role="viewer")
    assert bob.log_in("bob").status == 401
    admin.submit("/people", "/people/change", name="bob", enabled="1")
    assert bob.log_in("bob").status == 200


def test_an_admin_is_left(admin: Browser, store: Store) -> None:
    person(admin, "eve", "admin")
    ada, eve = store.people.of("ada"), store.people.of("eve")
    assert ada is not None and eve is not None
    assert store.people.change(eve, {"disabled_ms": 5}, [])
    assert not store.people.change(ada, {"disabled_ms": 5}, []), "the last one"
    assert not store.people.change(eve, {"disabled_ms": 0}, []), "as it was seen before"


def test_a_password_is_changed(admin: Browser) -> None:
    bob = person(admin, "bob", "viewer")
    assert bob.submit("/account", "/account/password", old="wrong", new=f"{PASSWORD}!").fault
    assert bob.submit("/account", "/account/password", old=PASSWORD, new="short").fault
    assert bob.submit("/account", "/account/password", old=PASSWORD, new=f"{PASSWORD}!").status == 200
    assert Browser(bob.base).log_in("bob").status == 401
    assert Browser(bob.base).log_in("bob", f"{PASSWORD}!").status == 200


def test_an_admin_gives_a_person_a_new_password(admin: Browser) -> None:
    bob = person(admin, "bob", "viewer")
    assert admin.submit("/people", "/people/change", name="bob", password="short").status == 400
    assert admin.submit("/people", "/people/change", name="bob", password="").status == 400
    assert bob.get("/", follow=False).status == 200
    for _ in range(6):
        Browser(bob.base).log_in("bob", "wrong password here")
    assert admin.submit("/people", "/people/change", name="bob", password=f"{PASSWORD}!").status == 200
    assert bob.get("/", follow=False).status == 303 and bob.api("GET", "/me").status == 401
    assert Browser(bob.base).log_in("bob", f"{PASSWORD}!").status == 200, "and waits no more"
    assert bob.log_in("bob").status == 401
    assert bob.log_in("bob", f"{PASSWORD}!").status == 200
    assert bob.submit("/account", "/people/change", name="ada", password=f"{PASSWORD}!").status == 403


def test_who_has_the_store_makes_an_admin_again(
    tmp_path: Path, admin: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    settings = parse_settings(f'[store]\nurl = "sqlite:///{tmp_path}/store.db"', name="settings", env={})
    with caplog.at_level(logging.INFO, "twinshore"):
        print_admin_link(settings)
    (secret,) = re.findall(r"http://127.0.0.1:9190/first-admin\?secret=(\S+)", caplog.text)
    one = Browser(admin.base)
    assert one.get(f"/first-admin?secret={secret}").status == 200
    assert one.post("/first-admin", secret=secret, name="ada", password=f"{PASSWORD}!").status == 200
    assert one.get("/people").status == 200 and admin.get("/", follow=False).status == 303
    assert admin.log_in("ada").status == 401
    assert one.post("/first-admin", secret=secret, name="eve", password=PASSWORD).status == 401, "once"


def test_a_person_is_added_with_what_was_filled_in(admin: Browser) -> None:
    refused = admin.submit("/people", "/people/add", name="bob", password="short", role="operator")
    assert refused.fault and 'value="bob"' in refused.body and 'value="operator" selected' in refused.body


def test_a_login_that_has_ended_is_not_remembered(tmp_path: Path, admin: Browser) -> None:
    bob = person(admin, "bob", "admin")
    assert bob.get("/people").status == 200
    kept = Browser(bob.base)
    for cookie in bob.jar:
        kept.jar.set_cookie(cookie)
    bob.submit("/account", "/logout")
    file, aside = tmp_path / "store.db", tmp_path / "aside.db"
    file.rename(aside)
    try:
        assert kept.get("/people").status == 503
    finally:
        shutil.move(aside, file)


def test_a_token_goes_to_no_other_server() -> None:
    with raises(ConfigError, "server.remote-unencrypted", url="http://platform.example"):
        Platform("http://platform.example", "secret")
    heard: list[str | None] = []

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers["Authorization"])
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{server.server_port}/elsewhere")
            self.end_headers()

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        with raises(RefusedError, "server.remote-refused"):
            Platform(f"http://127.0.0.1:{server.server_port}", "secret").ask("GET", "/me")
        server.shutdown()
    assert heard == ["Bearer secret"]


def test_a_command_line_logs_in_by_a_code(admin: Browser) -> None:
    bob = person(admin, "bob", "viewer")
    begun = Browser(bob.base).api("POST", "/device", {}).json()
    waiting = Browser(bob.base, token=begun["token"])
    assert waiting.api("GET", "/me").status == 401
    assert "no such code" in bob.submit("/device", "/device", code="AAAAAAAA").text
    bob.submit(begun["path"], "/device", code=begun["code"])
    assert waiting.api("GET", "/me").json()["name"] == "bob"
    assert "no such code" in bob.submit("/device", "/device", code=begun["code"]).text, "once"


def test_a_command_line_that_waits_for_its_login_ends_at_ctrl_c(base: str) -> None:
    with command("login", "--server", base) as waiting:
        assert waiting.stdout is not None and waiting.stdout.readline().startswith("open ")
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=20)
    assert (waiting.returncode, said.splitlines()) == (INTERRUPTED_EXIT_CODE, [STOPPED_MESSAGE])


def test_a_no_cancels_the_job(store: Store, admin: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    bob = person(admin, "bob", "operator")
    keep_token(bob.base, bob.token)
    with command("switch", "free", "--server", bob.base) as asking:  # its input has ended, which is a no
        until_s = time.monotonic() + 30
        while not (rows := store.jobs.page(JobFilter())) and time.monotonic() < until_s:
            time.sleep(0.05)
        store.jobs.swap(rows[0], planned(rows[0], JobPlan(decisions=(("it",),)), wall_ms()))
        _, said = asking.communicate(timeout=30)
    assert (asking.returncode, said.split()) == (1, ["Aborted."])
    assert store.jobs.page(JobFilter())[0].state is JobState.CANCELLED


def test_a_command_line_logs_out(admin: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    bob = person(admin, "bob", "viewer")
    keep_token(bob.base, bob.token)
    log_out(f"{bob.base}/")
    assert read_tokens() == {}
    with pytest.raises(RefusedError) as caught:
        Platform(bob.base, bob.token).ask("GET", "/me")
    assert f"twinshore login --server {bob.base}" in caught.value.hint
    with raises(ConfigError, "client.url-invalid", url=""):
        run_command(["link", "list", "--server"])


def test_the_description_of_the_api_is_whole() -> None:
    found = openapi()
    assert found["openapi"] == "3.1.0"
    paths = {f"/api/v1/operations/{one.path}" for one in operations().values()}
    assert paths <= found["paths"].keys()
    assert json.loads(json.dumps(found)) == found
