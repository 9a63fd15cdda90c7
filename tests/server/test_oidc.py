"""Logins by OpenID Connect over HTTP: a real provider, and a small one that lies."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from joserfc.jwk import ECKey, RSAKey

from testkit.console import PASSWORD, Answer, Browser, first_admin, person, web_process
from testkit.identity import REAL_PROVIDERS, SECRET, SmallProvider, part, settings_for, small_provider
from twinshore.config.errors import ConfigError
from twinshore.config.sections.serve import SECTION as SERVE
from twinshore.config.sections.serve import OidcSettings, RoleName
from twinshore.config.settings import parse_settings
from twinshore.lab.ports import free_port
from twinshore.server.core.catalogue import Role
from twinshore.server.core.oidc import LoginAttempt, claims_fault, person_of
from twinshore.state.store import Store, open_store

ROLES: tuple[tuple[str, RoleName], ...] = (("platform-team", "admin"), ("on-call", "operator"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


class Stage:
    """A platform with a provider that lies as it is told, and a local admin."""

    def __init__(self, store: Store, base: str, provider: SmallProvider) -> None:
        self.store, self.base, self.provider = store, base, provider
        self.admin = first_admin(store, base)

    def log_in(self, *groups: str, subject: str = "1234", **claims: Any) -> tuple[Browser, Answer]:
        self.provider.groups, self.provider.subject, self.provider.claims = list(groups), subject, claims
        browser = Browser(self.base)
        return browser, browser.get("/login/oidc")

    def role(self, browser: Browser) -> str:
        return browser.get("/account").lead


@pytest.fixture
def stage(store: Store, tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        provider, port = stack.enter_context(small_provider()), free_port()
        settings = settings_for(provider.issuer, port, tmp_path / "secret", roles=ROLES)
        yield Stage(store, stack.enter_context(web_process(store, port=port, oidc=settings)), provider)


@pytest.mark.parametrize("kind", REAL_PROVIDERS)
@pytest.mark.claim("platform", "provider", "a person logs in by a real identity provider, with the role of the group")
def test_a_person_logs_in_by_a_real_provider(store: Store, tmp_path: Path, kind: str) -> None:
    port = free_port()
    with REAL_PROVIDERS[kind](tmp_path, f"http://127.0.0.1:{port}/login/oidc/callback") as provider:
        settings = settings_for(
            provider.issuer, port, tmp_path / "secret", scopes=provider.scopes, roles=((provider.group, "approver"),)
        )
        with web_process(store, port=port, oidc=settings) as base:
            browser = Browser(base)
            assert 'href="/login/oidc?next=%2Ftopics">Log in with the company' in browser.get("/topics").body
            done = provider.log_in(browser, browser.get("/login/oidc?next=/topics"))
            assert done.status == 200, done.text
            assert 'content="0;url=/topics"' in done.body and "max-age=28800" in done.headers["set-cookie"].lower()
            (row,) = store.people.all()
            assert (row.role, row.password, row.made_by) == ("approver", "", "the company")
            assert browser.get("/account").lead == f"You are {row.name}, approver."
            assert Browser(base).log_in(row.name, "").status == 401, "no password opens it"


def test_the_roles_of_the_settings_are_those_of_the_catalogue() -> None:
    assert get_args(RoleName) == tuple(Role)


def test_the_role_is_that_of_the_groups_at_each_login(stage: Stage) -> None:
    browser, _ = stage.log_in("on-call", "other")
    assert stage.role(browser) == "You are grace, operator."
    assert 'action="/account/password"' not in browser.get("/account").body
    assert stage.admin.submit("/people", "/people/change", name="grace", password=PASSWORD).status == 409
    highest, _ = stage.log_in("on-call", "platform-team")
    assert stage.role(highest) == "You are grace, admin."
    assert stage.role(browser) == "You are grace, operator.", "an earlier session never gets more"
    assert highest.get("/people").status == 200
    stage.log_in("on-call")
    assert stage.role(highest) == "You are grace, operator."
    told = [(row.subject, row.before, row.after) for row in stage.store.audit.rows(limit=10) if row.kind == "person"]
    assert ("grace", "admin", "operator") in told and ("grace", "", "operator") in told
    answer = stage.admin.submit("/people", "/people/change", name="grace", role="admin")
    assert answer.status == 409, "the groups say it"


def test_who_is_in_no_group_is_refused_and_loses_tokens(stage: Stage) -> None:
    _, refused = stage.log_in("other")
    assert refused.status == 403 and [row.name for row in stage.store.people.all()] == ["ada"]
    browser, _ = stage.log_in("on-call")
    made = browser.submit("/account", "/account/add-token", name="t", role="operator", days="9")
    browser.token = made.body.split("data-copy>")[1].split("<")[0]
    assert browser.api("GET", "/me").json()["role"] == "operator"
    assert browser.submit("/account", "/account/add-token", name="t", role="admin", days="9").fault
    assert stage.log_in()[1].status == 403
    assert browser.api("GET", "/me").status == 401 and browser.get("/", follow=False).status == 303


def test_a_disabled_person_is_logged_out_at_once(stage: Stage) -> None:
    browser, _ = stage.log_in("on-call")
    assert browser.get("/").status == 200
    stage.admin.submit("/people", "/people/change", name="grace", enabled="0")
    assert browser.get("/", follow=False).status == 303
    assert stage.log_in("platform-team")[1].status == 403
    stage.admin.submit("/people", "/people/change", name="grace", enabled="1")
    assert stage.role(stage.log_in("on-call")[0]) == "You are grace, operator."


def test_a_name_is_no_identity(stage: Stage) -> None:
    """Another person of the same name, local or of the provider, gets no right of the first."""
    local = person(stage.admin, "grace", "admin")
    browser, _ = stage.log_in("on-call")
    other, _ = stage.log_in("on-call", subject="other")
    leads = {stage.role(one) for one in (local, browser, other)}
    assert len(leads) == 3 and "You are grace, admin." in leads
    assert stage.role(stage.log_in("on-call")[0]) == stage.role(browser), "the same person again"
    assert len(stage.store.people.all()) == 4


def no_signature(claims: dict[str, Any]) -> str:
    return f"{part({'alg': 'none'})}.{part(claims)}."


def shared_secret(key: bytes, kid: str) -> Callable[[dict[str, Any]], str]:
    def sign(claims: dict[str, Any]) -> str:
        signed = f"{part({'alg': 'HS256', 'kid': kid})}.{part(claims)}"
        return f"{signed}.{part(hmac.new(key, signed.encode(), hashlib.sha256).digest())}"

    return sign


def test_lies_are_refused(stage: Stage) -> None:
    now_s = int(time.time())
    lies: list[dict[str, Any]] = [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another"},
        {"aud": ["twinshore", "another"], "azp": "another"},
        {"iss": "https://another.example"},
        {"exp": now_s - 61},
        {"exp": None},
        {"iat": now_s + 120},
        {"nbf": now_s + 120},
        {"sub": ""},
        {"sub": None},
    ]
    for lie in lies:
        browser, refused = stage.log_in("platform-team", **lie)
        assert refused.status == 403 and browser.get("/", follow=False).status == 303, lie
    key = stage.provider.key
    for token in (
        no_signature,
        shared_secret(SECRET.encode(), "first"),
        shared_secret(key.as_pem(private=False), "first"),
        replace(stage.provider, key=RSAKey.generate_key(2048, {"kid": "first"})).sign,
        lambda claims: stage.provider.sign(claims)[:-4] + "AAAA",
        lambda _claims: "no token",
    ):
        stage.provider.token = token
        browser, refused = stage.log_in("platform-team")
        assert refused.status == 403 and browser.get("/", follow=False).status == 303
    assert [row.name for row in stage.store.people.all()] == ["ada"]
    stage.provider.token = None
    assert stage.log_in("on-call", exp=now_s - 30, aud=["twinshore"])[1].status == 200, "clocks differ a little"


def test_new_keys_are_fetched(stage: Stage) -> None:
    assert stage.log_in("on-call")[1].status == 200
    stage.provider.key = ECKey.generate_key("P-256", {"kid": "second"})
    assert stage.log_in("on-call")[1].status == 200


def test_a_callback_is_used_once_and_by_the_browser_that_began(stage: Stage) -> None:
    stage.provider.groups = ["on-call"]
    browser, other = Browser(stage.base), Browser(stage.base)
    begun = browser.get("/login/oidc", follow=False)
    cookie = begun.headers["set-cookie"]
    assert "samesite=lax" in cookie.lower() and "httponly" in cookie.lower() and "path=/login/oidc" in cookie.lower()
    query = dict(part.partition("=")[::2] for part in begun.headers["location"].partition("?")[2].split("&"))
    assert query["redirect_uri"].endswith("%2Flogin%2Foidc%2Fcallback")
    secret = cookie.partition("=")[2].partition(";")[0]
    assert LoginAttempt(secret).state == query["state"] and secret not in begun.headers["location"]
    back = Browser(begun.headers["location"]).send("GET", "", follow=False).headers["Location"]
    path = back.removeprefix(stage.base)
    other.get("/login/oidc", follow=False)
    assert other.get(path).status == 403, "another browser's callback logs no one in"
    planted = {"Cookie": f"twinshore-login={secret}; twinshore=planted"}
    done = Browser(stage.base).get(path, planted)
    assert done.status == 200 and "twinshore=planted" not in done.headers["set-cookie"]
    assert Browser(stage.base).get(path, planted).status == 403, "used up"
    assert Browser(stage.base).get("/login/oidc/callback").status == 403
    assert Browser(stage.base).get("/login/oidc/callback?code=x&state=y", planted).status == 403
    refused = Browser(stage.base).get("/login/oidc/callback?error=access_denied")
    assert refused.status == 403 and "the provider refused it" in refused.fault


def test_where_a_login_leads_is_a_page_of_this_site(stage: Stage) -> None:
    stage.provider.groups = ["on-call"]
    for wanted, leads in (("//evil.example/", "/"), ("https://evil.example/", "/"), ("/jobs%3Fstate%3Ddone", None)):
        done = Browser(stage.base).get(f"/login/oidc?next={wanted}")
        assert f'content="0;url={leads or "/jobs?state=done"}"' in done.body


def test_a_provider_that_is_away_is_said_in_words(store: Store, tmp_path: Path, stage: Stage) -> None:
    lost = settings_for(f"http://127.0.0.1:{free_port()}", 80, tmp_path / "secret", roles=ROLES)
    with web_process(store, oidc=lost) as base:
        said = Browser(base).get("/login/oidc")
        assert said.status == 503 and "the company does not answer" in said.fault
        assert Browser(base).log_in("ada", PASSWORD).status == 200, "passwords work"
    for lie in ({"issuer": "https://another.example"}, {"token_endpoint": "http://evil.example/"}, {"jwks_uri": 7}):
        with web_process(store, oidc=settings_for(stage.provider.issuer, 80, tmp_path / "secret", roles=ROLES)) as base:
            stage.provider.document = lie
            began = Browser(base).get("/login/oidc", follow=False)
            assert began.status == (503 if "issuer" in lie else 303), lie
    stage.provider.document = {}
    for status in (302, 500):
        stage.provider.status = status
        assert stage.log_in("on-call")[1].status == 503
    stage.provider.status = 200
    (tmp_path / "secret").unlink()
    said = stage.log_in("on-call")[1]
    assert said.status == 503 and str(tmp_path) not in said.body


def test_without_a_provider_there_is_no_such_page(store: Store) -> None:
    with web_process(store) as base:
        assert Browser(base).get("/login/oidc").status == 404
        assert "/login/oidc" not in Browser(base).get("/login").body


def test_what_claims_are_believed_to_say() -> None:
    settings = OidcSettings(issuer="https://a", client_id="c", public_url="https://b", roles=ROLES)
    claims = {"iss": "https://a", "aud": "c", "nonce": "n", "exp": 100, "iat": 50, "sub": "s", "groups": "on-call"}
    assert claims_fault(claims, settings, "n", 159) == "" and claims_fault(claims, settings, "n", 160)
    assert person_of(claims, settings).role is Role.OPERATOR
    assert person_of(claims, settings).name == "s"
    assert person_of({**claims, "groups": None}, settings).role is None
    assert person_of({**claims, "groups": {}}, replace(settings, default_role="viewer")).role is Role.VIEWER
    assert person_of({**claims, "email": "g@a"}, settings).identity == person_of(claims, settings).identity


SECTION = """
[serve]
{serve}
[serve.oidc]
issuer = "https://login.example"
client_id = "twinshore"
client_secret_env = "TWINSHORE_SERVE_OIDC"
public_url = "https://twinshore.example"
{oidc}
[serve.oidc.roles]
{roles}
"""
BEHIND, TEAM = 'behind_proxy = ["10.0.0.0/8"]', '"platform-team" = "admin"'


def read_section(serve: str = BEHIND, oidc: str = "", roles: str = TEAM) -> OidcSettings | None:
    text = SECTION.format(serve=serve, oidc=oidc, roles=roles)
    for name in [line.partition(" =")[0] for line in oidc.splitlines()]:
        text = "\n".join(line for line in text.splitlines() if not line.startswith(f"{name} =") or line in oidc)
    return parse_settings(text, name="test", env={"TWINSHORE_SERVE_OIDC": "x"}).of(SERVE).oidc


def test_the_section_is_read() -> None:
    found = read_section(oidc='groups_claim = "roles"\ndefault_role = "viewer"')
    assert found is not None and found.roles == (("platform-team", "admin"),)
    assert (found.groups_claim, found.default_role, found.client_secret.env) == (
        "roles",
        "viewer",
        "TWINSHORE_SERVE_OIDC",
    )
    assert parse_settings("", name="test", env={}).of(SERVE).oidc is None
    assert read_section(serve="", oidc='issuer = "http://127.0.0.1:5556/dex"') is not None, "of this machine"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"serve": ""}, "behind_proxy"),
        ({"oidc": 'issuer = "http://login.example"'}, "issuer"),
        ({"oidc": 'public_url = "http://twinshore.example"'}, "public_url"),
        ({"oidc": 'client_secret = "plain"'}, "client_secret_env"),
        ({"oidc": 'client_secret_file = "x"'}, "one or the other"),
        ({"oidc": 'scopes = ["profile"]'}, "openid"),
        ({"oidc": 'default_role = "owner"'}, "default_role"),
        ({"roles": '"platform-team" = "owner"'}, "roles"),
        ({"roles": ""}, "default_role"),
    ],
)
def test_a_wrong_section_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_section(**given)
    assert "[serve.oidc]" in str(caught.value) and told in str(caught.value)
