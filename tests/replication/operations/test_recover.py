"""What recovering a lost store says it does, and that it refuses where a mirror has begun meanwhile."""

from __future__ import annotations

from testkit.errors import mentions, raises
from tests.replication.operations.asked import LINK, settings_of
from twinshore.config.errors import RefusedError
from twinshore.replication.core.claim_records import StoreClaim
from twinshore.replication.operations import recover
from twinshore.replication.operations.recover import RecoveredPartition, RecoverPlan, Recovery, act
from twinshore.state.core.values import LinkIdentity, TwinRow
from twinshore.state.store import Store

SETTINGS = settings_of(f'[links."{LINK}"]\n')
IDENTITY = LinkIdentity(LINK, 7, 0, "e", "w")


def seen(holder: StoreClaim | None) -> Recovery:
    row = TwinRow(LINK, "orders", 0, "aa", "bb", 40, 4, 0)
    found = RecoveredPartition(row, 90, 95, "ends at 90, the source at 95")
    return Recovery("own", "e", holder, IDENTITY, None, (found,), (("bills", "is not on east"),))


def test_each_step_says_what_it_is_or_would_be(store: Store) -> None:
    claim = StoreClaim("0123456789", "a-host", 0)
    assert [step.sentence(done=True) for step in recover.build_recover_steps(LINK, seen(claim), store)] == [
        "east->west: taken over from store 01234567 (host a-host, since 1970-01-01 00:00:00 UTC) by this store,"
        f" {store.place}, as producer 7",
        "east->west: restored: orders-0 ends at 90, the source at 95; sequence 4 at offset 40",
        "east->west: not restored: bills is not on east",
    ]
    would = [
        step.sentence(done=False)
        for step in recover.build_recover_steps(LINK, seen(StoreClaim("own", "a-host", 0)), store)
    ]
    assert mentions(would[0], LINK, "would be kept", "producer 7")
    assert [mentions(one, "would be restored") for one in would] == [False, True, False]


def test_a_mirror_that_has_begun_since_the_plan_is_not_disturbed(store: Store) -> None:
    planned = RecoverPlan(tuple(recover.build_recover_steps(LINK, seen(None), store)), link=LINK, recovery=seen(None))
    store.leases.take(f"link {LINK}", "a mirror", 2_000, row=None)
    with raises(RefusedError, "replication.link-running", link=LINK, owner="a mirror"):
        list(act(planned, SETTINGS, store, by="anna"))
    assert store.links.identity(LINK) is None
