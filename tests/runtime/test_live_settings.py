"""Live settings: planned and done without a command line; and a process that reads them while it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.errors import raises
from testkit.log_lines import LogLines
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.sections.proxy import SECTION
from twinshore.config.settings import Settings, parse_settings
from twinshore.runtime.live_settings import (
    HIDDEN,
    LiveSettings,
    SettingInForce,
    act,
    list_settings,
    plan_rows,
    plan_set,
    plan_unset,
    settings_in_force,
)
from twinshore.state.core.values import LiveSettingRow
from twinshore.state.store import Store, open_store

FILE = """
[clusters.east]
bootstrap = ["e:1"]
[clusters.west]
bootstrap = ["w:1"]
[links."east->west"]
topics = ["orders"]
[proxy]
new_topics = "west"
clients_max = 3
[delay]
webhook_url = "https://chat/hooks/s3cr3t"
[mirror.spark]
"spark.ssl.keyPassword" = "s3cr3t"
"""
NARROW = '[clusters.east]\nbootstrap = ["e:1"]\n[proxy]\nclients_max = 3\n'


def read(text: str = FILE) -> Settings:
    return parse_settings(text, name="test", env={})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


def put(store: Store, key: str, value: str) -> None:
    list(act(plan_set(key, value, read(), store, by="anna"), store, by="anna"))


def seen(store: Store, prefix: str) -> dict[str, SettingInForce]:
    return {one.key: one for one in list_settings(read(), store, {"TWINSHORE_PROXY_CLIENTS_MAX": "3"}, prefix)}


def test_a_value_is_planned_set_shown_and_unset(store: Store) -> None:
    plan = plan_set("proxy.new_topics", "east", read(), store, by="anna")
    assert store.settings.revision() == 0, "a plan changes nothing"
    assert plan.decisions() == ('name proxy.new_topics: proxy.new_topics would be "east"',)
    assert list(act(plan, store, by="anna")) == list(plan.steps)
    one = seen(store, "proxy.new_topics")["proxy.new_topics"]
    assert (one.value, one.source, one.set_by, one.is_live, one.changed_ms > 0) == ("east", "store", "anna", True, True)
    assert settings_in_force(read(), store).of(SECTION).new_topics == "east"
    with raises(RefusedError, "runtime.settings-changed"):
        list(act(plan, store, by="bob"))
    list(act(plan_unset("proxy.new_topics", read(), store), store, by="bob"))
    assert seen(store, "proxy.new_topics")["proxy.new_topics"].source == "file"
    told = [(row.subject, row.before, row.after, row.actor) for row in store.audit.rows("")]
    assert told == [("proxy.new_topics", '"east"', "", "bob"), ("proxy.new_topics", "", '"east"', "anna")]


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("proxy.new_topics", "north", "runtime.setting-refused"),
        ("proxy.clients_max", "-1", "runtime.setting-refused"),
        ("delay.webhook", "https://evil/x", "runtime.setting-refused"),
        ("proxy.port", "1", "config.setting-not-live"),
        ("delay.webhook_url", "https://evil/x", "config.setting-not-live"),
        ("switch.before", '["/bin/sh"]', "config.setting-not-live"),
        ("proxy.users.anna", "x", "runtime.setting-secret"),
        ("a b", "1", "config.setting-key-invalid"),
    ],
)
def test_what_is_refused_changes_nothing(store: Store, key: str, value: str, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_set(key, value, read(), store, by="anna")
    assert (caught.value.code, store.settings.revision()) == (code, 0)


def test_what_another_value_needs_is_not_unset(store: Store) -> None:
    put(store, "proxy.alarms.x", "{ above_bytes_s = 5 }")
    put(store, "proxy.alarms.x.for_s", "7")
    with raises(ConfigError, "runtime.setting-refused", key="proxy.alarms.x", value="unset"):
        plan_unset("proxy.alarms.x", read(), store)
    with raises(ConfigError, "runtime.setting-not-set", key="proxy.clients_max"):
        plan_unset("proxy.clients_max", read(), store)


def test_where_each_value_is_from_and_secrets_are_hidden(store: Store) -> None:
    put(store, "proxy.alarms", "{}")
    list(act(plan_rows(("proxy", "users", "a.b"), "salt=c2VhbGVk", read(), store, by="anna"), store, by="anna"))
    found = seen(store, "")
    sources = {key: (found[key].value, found[key].source) for key in found}
    assert sources["proxy.new_topics"] == ("west", "file")
    assert sources["proxy.clients_max"] == (3, "environment")
    assert sources["proxy.client_bytes_s"] == (0, "default")
    assert sources["proxy.alarms"] == ({}, "store")
    assert sources['proxy.users."a.b"'] == (HIDDEN, "store")
    assert sources["delay.webhook_url"] == ("https://chat/...", "file")
    assert sources['mirror.spark."spark.ssl.keyPassword"'] == (HIDDEN, "file")
    assert not [key for key in found if key.startswith("links")], "the store has them"
    everything = json.dumps([str(one) for one in found.values()]) + str(store.audit.rows(""))
    assert "s3cr3t" not in everything
    assert "c2VhbGVk" not in everything


def test_a_process_takes_what_changes_and_keeps_its_last_good_value(store: Store, log_lines: LogLines) -> None:
    changes: list[int] = []
    live = LiveSettings(read(NARROW))
    live.changed = lambda: changes.append(live.revision)
    assert live.values.settings.of(SECTION).clients_max == 3, "the file's until the store is read"
    live.look(store)
    assert (live.revision, live.obeyed, changes) == (0, 0, [])
    put(store, "proxy.new_topics", "east")
    live.look(store)
    live.look(store)
    assert (live.values.settings.of(SECTION).new_topics, live.obeyed, changes) == ("east", 1, [1])
    log_lines.clear()
    put(store, "proxy.new_topics", "west")  # a cluster that this process does not know
    put(store, "proxy.clients_max", "9")
    live.look(store)
    found = live.values.settings.of(SECTION)
    assert (found.new_topics, found.clients_max, live.obeyed) == ("east", 9, 1)
    put(store, "proxy.clients_max", "8")
    live.look(store)
    assert len([line for line in log_lines if "proxy.new_topics" in line]) == 1, "said once"
    assert live.obeyed == 1
    list(act(plan_unset("proxy.new_topics", read(), store), store, by="anna"))
    live.look(store)
    assert (live.values.settings.of(SECTION).new_topics, live.obeyed) == ("", store.settings.revision())


def test_a_row_of_another_version_is_set_aside_and_shown(store: Store) -> None:
    row = LiveSettingRow("proxy.port", "1", "anna", 1_000)
    assert store.settings.change([row], [], seen=0, told=[])
    live = LiveSettings(read())
    live.look(store)
    assert (live.values.settings, live.obeyed) == (read(), 0)
    one = seen(store, "proxy.port")["proxy.port"]
    assert (one.value, one.source, bool(one.refused)) == (1, "store", True)
    put(store, "proxy.clients_max", "5")
    list(act(plan_unset("proxy.port", read(), store), store, by="anna"))
    live.look(store)
    assert live.obeyed == 3
