"""What settings say of TLS and logins at the proxy: whom they lead on as whom, and what of them cannot be meant."""

from __future__ import annotations

import pytest

from twinshore.config.errors import ConfigError
from twinshore.config.model import Secret
from twinshore.config.sections.proxy import SECTION, ClusterCredentials, ProxySettings
from twinshore.config.settings import parse_settings

CLUSTERS = """
[clusters.east]
bootstrap = ["e:1"]
[clusters.west]
bootstrap = ["w:1"]
[clusters.west.security]
sasl = "PLAIN"
username = "own"
password_file = "own"
[clusters.token]
bootstrap = ["t:1"]
[clusters.token.security]
sasl = "OAUTHBEARER"
token_file = "token"
[proxy]
clusters = ["east", "west"]
"""
LOGINS = 'sasl = ["PLAIN"]\nusers_file = "users.toml"\n'


def proxy(text: str) -> ProxySettings:
    return parse_settings(CLUSTERS + text, name="test", env={}).of(SECTION)


def test_a_principal_is_led_on_as_one_user_everywhere_or_as_another_at_a_cluster() -> None:
    tables = '[proxy.credentials."CN=app,O=corp"]\nusername = "app"\npassword_env = "APP"\n'
    tables += '[proxy.credentials."CN=app,O=corp".clusters.west]\nusername = "west"\npassword_file = "west"\n'
    found = proxy(f"{LOGINS}{tables}")
    assert found.logins == {
        ("CN=app,O=corp", "east"): ClusterCredentials("app", Secret(env="APP")),
        ("CN=app,O=corp", "west"): ClusterCredentials("west", Secret(file="west")),
    }
    alone = CLUSTERS.replace('["east", "west"]', '["west"]')
    assert parse_settings(f'{alone}{LOGINS}credentials = "same"\n', name="t", env={}).of(SECTION).logins == {}


WEST_ALONE = '[proxy.credentials.a.clusters.west]\nusername = "a"\npassword_file = "a"'
CERTIFICATE = """
[clusters.cert]
bootstrap = ["c:1"]
[clusters.cert.security]
tls = true
cert_file = "proxy.pem"
key_file = "proxy.key"
"""


def test_a_table_names_a_user_for_each_cluster_that_asks_or_others_are_the_proxy_by_word() -> None:
    asks = CLUSTERS.replace('bootstrap = ["e:1"]', 'bootstrap = ["e:1"]\nsecurity = { sasl = "PLAIN", username = "o" }')
    asks = asks.replace('username = "o" }', 'username = "o", password_file = "o" }')
    shown = CLUSTERS.replace("[proxy]", CERTIFICATE + "[proxy]").replace('"east", "west"', '"cert", "west"')
    for text, complaint in ((asks, "cluster east has no user for it"), (shown, "cluster cert knows clients by")):
        with pytest.raises(ConfigError, match=complaint):
            parse_settings(f"{text}{LOGINS}{WEST_ALONE}", name="test", env={})
        found = parse_settings(f'{text}{LOGINS}credentials_else = "own"\n{WEST_ALONE}', name="test", env={})
        assert list(found.of(SECTION).logins) == [("a", "west")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('certificate_file = "a"', "certificate_file and key_file: one needs the other"),
        ('client_ca_file = "a"', "client_ca_file: has no effect without certificate_file"),
        ('sasl = ["SCRAM-SHA-51"]', "sasl: no mechanism 'SCRAM-SHA-51' here; did you mean SCRAM-SHA-512?"),
        ('sasl = ["OAUTHBEARER"]\nusers_file = "a"', "sasl: no mechanism 'OAUTHBEARER' here"),
        ('sasl = ["PLAIN"]', "sasl: needs users_file"),
        ('users_file = "a"', "users_file: has no effect without sasl"),
        ('credentials = "own"', "credentials: must be `same`, or tables [proxy.credentials.PRINCIPAL], not 'own'"),
        (
            'sasl = ["SCRAM-SHA-512"]\nusers_file = "a"\ncredentials = "same"',
            'same needs sasl = ["PLAIN"]',
        ),
        ('[proxy.credentials.a]\nusername = "a"\npassword_file = "a"', "credentials: have no effect without sasl"),
        (f'{LOGINS}[proxy.credentials.a]\nusername = "a"', '[proxy.credentials."a"] needs username and password_env'),
        (f"{LOGINS}[proxy.credentials.a]", '[proxy.credentials."a"] needs username and password_env'),
        (f'{LOGINS}[proxy.credentials.a]\npassword = "a"', "a secret never stands in the settings"),
        (f"{LOGINS}[proxy.credentials.a]\ncluster = 1", "cluster: unknown; did you mean clusters?"),
        (f'{LOGINS}credentials_else = "own"', "credentials_else: has no effect without tables"),
        (f'{LOGINS}credentials_else = "me"\n[proxy.credentials.a]', "credentials_else: must be `own` or empty"),
        (f"{LOGINS}credentials = 1", "credentials: must be text in quotes"),
        (
            f'{LOGINS}[proxy.credentials.a.clusters.wst]\nusername = "a"\npassword_file = "a"',
            "no cluster 'wst' behind the proxy; did you mean west?",
        ),
        (
            f'{LOGINS}[proxy.credentials.a.clusters.east]\nusername = "a"\npassword_file = "a"',
            '[proxy.credentials."a"] cluster east asks for no login',
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        proxy(text)
    assert complaint in str(caught.value)


def test_a_user_and_a_password_are_of_no_use_where_a_token_is_shown() -> None:
    text = CLUSTERS.replace('clusters = ["east", "west"]', 'clusters = ["token"]')
    for more, complaint in (
        (
            '[proxy.credentials.a]\nusername = "a"\npassword_file = "a"',
            "cluster token logs in by the token in",
        ),
        ('credentials = "same"', "credentials: same is of no use to cluster token, which takes OAUTHBEARER"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse_settings(f"{text}{LOGINS}{more}", name="test", env={})
        assert complaint in str(caught.value)


def test_the_same_password_without_users_needs_a_cluster_that_can_say_whether_it_is_right() -> None:
    same = 'sasl = ["PLAIN"]\ncredentials = "same"\n'
    text = CLUSTERS.replace('clusters = ["east", "west"]', 'clusters = ["west"]')
    assert parse_settings(f"{text}{same}", name="test", env={}).of(SECTION).credentials == "same"
    with pytest.raises(ConfigError, match=r"same .* east"):
        proxy(same)
