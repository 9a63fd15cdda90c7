"""`twinshore mirror forget`: what it refuses, and that it changes nothing then."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from testkit.errors import raises
from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.incident_policy import POLICY_TOPIC, IncidentKind
from twinshore.replication import recovery
from twinshore.replication.sync.core import lifecycle
from twinshore.state.core.values import Incident, LinkStateRow, TwinRow

BACK = "west->east"
LEASE = f"link {LINK}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two links that know orders; one of them knows bills too."""
    found = write_settings(tmp_path, f'[links."{LINK}"]\n[links."{BACK}"]\n[mirror]\nlease_s = 2.0\nprogress_s = 0.5\n')
    with opened(found) as store:
        places = ((LINK, "orders"), (BACK, "orders"), (LINK, "bills"))
        store.twins.save([TwinRow(link, topic, 0, "aa", "bb", 0, 0, 1) for link, topic in places])
    return found


def forget(file: Path, *words: str) -> str:
    return asking.run(file, "mirror", "forget", *words)


def known(file: Path) -> list[tuple[str, str]]:
    with opened(file) as store:
        return [(row.link, row.topic) for link in (LINK, BACK) for row in store.twins.of(link)]


def test_a_topic_of_several_links_needs_the_links_name(file: Path) -> None:
    with raises(ConfigError, "replication.topic-on-several-links", topic="orders"):
        forget(file, "orders")
    assert len(known(file)) == 3
    forget(file, "orders", "--link", "east..west")
    assert known(file) == [(LINK, "bills"), (BACK, "orders")]


def test_a_link_that_settings_lack_by_now_lets_go_of_its_twin(file: Path) -> None:
    with opened(file) as store:
        store.twins.save([TwinRow("old->west", "orders", 0, "aa", "bb", 0, 0, 1)])
    with raises(ConfigError, "replication.topic-unknown", topic="bills"):
        forget(file, "bills", "--link", "old..west")
    assert "1 partitions of orders forgotten" in forget(file, "orders", "--link", "old..west")
    with pytest.raises(ConfigError, match="old->west"):
        forget(file, "orders", "--link", "old..west")
    assert len(known(file)) == 3


def test_a_topic_that_nobody_knows_is_an_error_with_the_nearest(file: Path) -> None:
    with raises(ConfigError, "replication.topic-unknown", topic="bill", near="; did you mean bills?"):
        forget(file, "bill")


def test_what_the_ledger_alone_still_says_of_a_topic_is_closed(file: Path) -> None:
    with opened(file) as store:
        row = Incident(LINK, "gone", -1, IncidentKind.RECREATED_TOPIC, -1, -1, POLICY_TOPIC, "gone again.")
        store.incidents.add(row, now_ms=1)
    forget(file, "gone")
    with opened(file) as store:
        assert store.incidents.rows(LINK, open_only=True) == ()


def test_a_link_that_a_mirror_carries_is_left_alone(file: Path) -> None:
    done = threading.Event()
    with opened(file) as store:
        held = store.leases.take(LEASE, "a mirror", 2_000, row=None)

        def beat() -> None:
            row = held
            while row is not None and not done.wait(0.2):
                row = store.leases.renew_each([row], {row.name: row.ttl_ms}).get(row.name)

        mirror = threading.Thread(target=beat)
        mirror.start()
        try:
            with raises(RefusedError, "replication.link-running", owner="a mirror"):
                forget(file, "bills")
        finally:
            done.set()
            mirror.join()
        assert (LINK, "bills") in known(file)
        row = store.leases.read(LEASE)
        assert row is not None
        assert store.leases.release(row)
    assert "1 partitions of bills forgotten" in forget(file, "bills")


def test_a_lease_that_runs_out_is_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "GRACE_S", 0.0)
    with opened(file) as store:
        store.leases.take(LEASE, "a mirror that was killed", 500, row=None)
    forget(file, "bills")
    assert known(file) == [(LINK, "orders"), (BACK, "orders")]


def test_what_was_announced_and_agreed_to_ends_with_the_topic_and_the_audit_has_it(file: Path) -> None:
    with opened(file) as store:
        kinds = (lifecycle.TOPIC_KIND, lifecycle.RECREATE_APPROVAL, lifecycle.DELETE_APPROVAL, lifecycle.KEEP_TWIN)
        store.link_states.remember([LinkStateRow(LINK, kind, "bills", "{}", "gone", 1) for kind in kinds])
    forget(file, "bills", "--dry-run")
    with opened(file) as store:
        assert len(store.link_states.of(LINK)) == 4
        assert store.audit.rows(LINK) == ()
    forget(file, "bills")
    with opened(file) as store:
        assert [row.kind for row in store.link_states.of(LINK)] == [lifecycle.KEEP_TWIN], "an operator's no stays"
        assert [(row.subject, row.after.split(":")[0]) for row in store.audit.rows(LINK)] == [("bills", "forgotten")]
