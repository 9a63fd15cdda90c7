"""Live settings: which keys may stand in the store, how they lie over the file, and what does not fit."""

from __future__ import annotations

import json

import pytest

from testkit.errors import raises
from twinshore.config.declaration import setting_rows
from twinshore.config.errors import ConfigError
from twinshore.config.live import check_live, decide, format_key, is_live, live_keys, parse_key, parse_value
from twinshore.config.schema import all_sections
from twinshore.config.sections import near, proxy
from twinshore.config.settings import Settings, parse_settings

FILE = """
[clusters.east]
bootstrap = ["e:1"]
site = "frankfurt"
[clusters.west]
bootstrap = ["w:1"]
site = "paris"
[proxy]
new_topics = "west"
client_bytes_s = 7
[proxy.new_topics_by_name]
"*" = "west"
[proxy.alarms.runs]
above_bytes_s = 5
[delay]
webhook_url = "https://chat/x"
[delay.webhooks.duty]
url = "https://duty/x"
token_env = "DUTY"
"""


def read(text: str = FILE) -> Settings:
    return parse_settings(text, name="test", env={})


def rows(**values: object) -> dict[str, str]:
    return {key: json.dumps(value) for key, value in values.items()}


LIVE = {
    "proxy.new_topics",
    "proxy.client_bytes_s",
    "proxy.clients_max",
    "proxy.clients_of_one_address_max",
    "near.behind_s_max",
    "near.own_topics",
    "delay.min_delay_latest_offset",
    "delay.min_delay_consume_offset",
    "delay.recovery_point_s",
    "delay.heartbeat_s",
    "delay.blind_s",
    "delay.rise_s",
    "delay.clear_s",
    "delay.repeat_s",
    "delay.quiet",
    "delay.webhook",
}
LIVE_TABLES = {
    "proxy.new_topics_by_name",
    "proxy.alarms",
    "near.networks",
    "near.next",
    "delay.latest_thresholds",
    "delay.consume_thresholds",
    "delay.recovery_points_s",
}
# What only the settings file may say, whatever a declaration says.
NEVER = ("command", "file", "folder", "env", "url", "address", "host", "port", "bootstrap", "tls", "sasl", "token")
NEVER_WORDS = (*NEVER, "password", "credentials", "certificate", "ca", "key", "before", "after", "master", "username")


def test_every_declared_setting_is_on_the_list_or_refused_by_name() -> None:
    """All sections and all their tables, under a name where a table has one."""
    refused = 0
    for section in all_sections():
        for place, declared in section.tables:
            table = tuple("x" if name.isupper() else name.strip('"') for name in place.strip("[]").split("."))
            for row in setting_rows(declared):
                key = format_key((*table, row.name))
                if key in LIVE or table[:2] == ("proxy", "alarms"):
                    check_live(parse_key(key))
                    continue
                refused += 1
                with raises(ConfigError, "config.setting-not-live", key=key):
                    check_live(parse_key(key))
    assert refused > 150


def test_the_list_has_no_command_path_address_or_secret() -> None:
    found = set(live_keys())
    tables = {f"{one}{end}" for one in LIVE_TABLES for end in ("", ".NAME")}
    assert found == LIVE | tables | {"proxy.alarms.NAME.FIELD", "proxy.users.NAME"}
    fields = {row.name for row in setting_rows(proxy.AlarmSection)}
    for key in (*found, *fields):
        words = key.rpartition(".")[2].split("_")
        assert key == "proxy.clients_of_one_address_max" or not set(words) & set(NEVER_WORDS), key


@pytest.mark.parametrize(
    "key",
    [
        "proxy",
        "proxy.users",
        "proxy.users.anna.scram",
        "proxy.alarms.x.y",
        "proxy.alarms.x.topic.y",
        "proxy.new_topics_by_name.x.y",
        "delay.webhooks.duty.url",
        "delay.webhooks",
        "switch.before",
        "clusters.east.bootstrap",
        'links."east->west".topics',
        "store.url",
        "serve.four_eyes",
        "nothing.there",
    ],
)
def test_what_is_not_live(key: str) -> None:
    assert not is_live(parse_key(key))


@pytest.mark.parametrize("key", ["", "a b", "a = 1 #", "a\nb", "[a", "a..b", "a" * 256, 'a."\0"'])
def test_what_is_no_key(key: str) -> None:
    with raises(ConfigError, "config.setting-key-invalid", key=key):
        parse_key(key)


def test_keys_are_written_in_one_way() -> None:
    path = ("proxy", "new_topics_by_name", 'a."b*')
    assert parse_key(format_key(path)) == path
    assert format_key(parse_key("'proxy' . new_topics")) == "proxy.new_topics"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("2.5", 2.5),
        ("true", True),
        ("west", "west"),
        ('"5"', "5"),
        ('["a", "b"]', ["a", "b"]),
        ('{ "a-*" = "west" }', {"a-*": "west"}),
        ("5\nother = 6", "5\nother = 6"),
        ("2026-12-01", "2026-12-01"),
    ],
)
def test_values_are_those_of_the_file_and_else_text(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_the_store_counts_before_the_file_and_the_file_before_the_default() -> None:
    found = decide(read(), rows(**{"proxy.client_bytes_s": 9, "near.behind_s_max": 2, "delay.quiet": ["22:00-06:00"]}))
    seen = found.settings.of(proxy.SECTION)
    assert (seen.client_bytes_s, seen.new_topics, seen.clients_max) == (9, "west", 0)
    assert found.settings.of(near.SECTION).behind_s_max == 2
    assert found.settings.delay.section.quiet == ("22:00-06:00",)
    assert found.settings.clusters == read().clusters
    assert decide(read(), {}).settings == read()


def test_an_entry_stands_before_those_of_the_file_and_the_longest_first() -> None:
    by_name = {'proxy.new_topics_by_name."a-*"': "east", 'proxy.new_topics_by_name."a-b-*"': "west"}
    found = decide(read(), rows(**by_name)).settings.of(proxy.SECTION)
    assert found.new_topics_by_name == (("a-b-*", "west"), ("a-*", "east"), ("*", "west"))
    whole = decide(read(), rows(**by_name, **{"proxy.new_topics_by_name": {"b": "east"}})).settings.of(proxy.SECTION)
    assert whole.new_topics_by_name == (("a-b-*", "west"), ("a-*", "east"), ("b", "east"))


def test_an_alarm_is_changed_in_a_field_or_whole() -> None:
    found = decide(read(), rows(**{"proxy.alarms.runs.for_s": 3, "proxy.alarms.stops": {"below_bytes_s": 1}}))
    alarms = dict(found.settings.of(proxy.SECTION).alarms)
    assert (alarms["runs"].above_bytes_s, alarms["runs"].for_s, alarms["stops"].below_bytes_s) == (5, 3, 1)
    assert decide(read(), rows(**{"proxy.alarms": {}})).settings.of(proxy.SECTION).alarms == ()


def test_values_that_need_each_other_are_taken_in_any_order() -> None:
    found = decide(read(), rows(**{'near.networks."10.1.0.0/16"': "lyon", "near.next.lyon": ["paris"], "delay.x": 1}))
    assert found.settings.of(near.SECTION).networks == (("10.1.0.0/16", "lyon"),)
    wrong = rows(**{'near.networks."10.1.0.0/16"': "lyon", "near.next.lyon": ["paris"], "proxy.new_topics": "north"})
    found = decide(read(), wrong)
    assert found.settings.of(near.SECTION).networks == (("10.1.0.0/16", "lyon"),)
    assert found.refused.keys() == {"proxy.new_topics"}


def test_what_does_not_fit_is_set_aside_and_the_last_good_value_stays() -> None:
    first = decide(read(), rows(**{"proxy.new_topics": "east", "proxy.clients_max": 3}))
    wrong = rows(**{"proxy.new_topics": "north", "proxy.clients_max": 4, "proxy.port": 1, "a b": 1}) | {
        "near.next": "["
    }
    found = decide(read(), wrong, first.accepted)
    seen = found.settings.of(proxy.SECTION)
    assert (seen.new_topics, seen.clients_max, seen.port) == ("east", 4, 19092)
    assert found.refused.keys() == {"proxy.new_topics", "proxy.port", "a b", "near.next"}
    assert decide(read(), {}, found.accepted).settings.of(proxy.SECTION).new_topics == "west"


def test_a_value_of_an_odd_kind_is_set_aside() -> None:
    live = decide(read(), {'near.networks."10.0.0.0/8"': "[1]", "proxy.clients_max": "[" * 100_000})
    assert live.refused.keys() == {'near.networks."10.0.0.0/8"', "proxy.clients_max"}


def test_a_webhook_is_a_label_of_the_file() -> None:
    assert read().delay.hook_url == "https://chat/x"
    found = decide(read(), rows(**{"delay.webhook": "duty"}))
    assert (found.settings.delay.hook_url, found.settings.delay.token.env) == ("https://duty/x", "DUTY")
    for value in ("other", "https://evil/x", {"url": "https://evil/x"}):
        found = decide(read(), rows(**{"delay.webhook": value}))
        assert (found.settings.delay.hook_url, set(found.refused)) == ("https://chat/x", {"delay.webhook"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('webhook = "dutty"', "webhook: no target 'dutty'; did you mean duty?"),
        ("webhooks.other = {}", "[delay.webhooks.other] needs url, url_env or url_file"),
        ('webhooks.other.url = "x"', "[delay.webhooks.other] url: 'x' is not like https://host/path"),
        ('webhooks.other = { url = "https://a/b", url_env = "X" }', "url, url_env and url_file: one of them"),
        ('webhooks = ["x"]', "webhooks: must be tables [delay.webhooks.LABEL]"),
    ],
)
def test_wrong_targets_of_alarms(text: str, says: str) -> None:
    whole = (
        f"[delay]\n{text}\n"
        if text.startswith("webhooks =")
        else f'[delay]\n{text}\n[delay.webhooks.duty]\nurl = "https://d/x"\n'
    )
    with pytest.raises(ConfigError) as caught:
        read(whole)
    assert says in caught.value.message


def test_users_are_kept_apart() -> None:
    found = decide(read(), rows(**{'proxy.users."a.b"': "salt=..."}))
    assert (found.users, found.accepted) == ({"a.b": "salt=..."}, {})
    assert "salt" not in repr(found)
