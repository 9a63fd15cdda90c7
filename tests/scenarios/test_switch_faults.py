"""What stands in the way of a switch, and what comes between: each is told in a sentence, and nothing is half done."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testkit.clients import alter_topic
from testkit.errors import mentions
from testkit.raw_writer import RawWriter
from tests.scenarios.group_stage import Reading, more, written
from tests.scenarios.held_request import Held
from tests.scenarios.mirror_rig import until, url_in
from tests.scenarios.raw_writers_log import state_of
from tests.scenarios.switch_rig import SwitchRig, carried, ended, turned_back, verdict_in
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_switched_home import read
from twinshore.config.model import fence_epoch, written_epoch
from twinshore.config.settings import load_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.error_codes import Code
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.state.store import open_store
from twinshore.switch.operations.plan import SwitchPlanRequest, plan
from twinshore.switch.operations.run import SwitchCaller, run_switch

TOPIC = "faults-orders"


@pytest.fixture(scope="module")
def rig(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchRig]:
    with carried(east, west, TOPIC, tmp_path_factory.mktemp("faults")) as made:
        yield made


def started(rig: SwitchRig, *words: str) -> list[tuple[int, str]]:
    """Both commands at the same moment, in processes of their own; how they ended."""
    running = [rig.begin(*one.split()) for one in words]
    return [(ended(child, log), log.read_text(encoding="utf-8")) for child, log in running]


@pytest.mark.long
@pytest.mark.claim("switch", "two-operators", "two operators at once: one wins, the other is told")
def test_two_operators_at_once_one_wins(rig: SwitchRig) -> None:
    twin, term = rig.sides()[1], rig.home()[1]
    before = rig.level()
    settings = load_settings(rig.settings, {})
    with open_store(url_in(rig.rig.folder)) as store:
        older = plan(SwitchPlanRequest([TOPIC], twin.name), settings, store, by="carol")
    assert older.state is not None, older.refusal
    told = started(rig, *[f"run {TOPIC} --to {twin.name} --yes"] * 2)
    codes = sorted(code for code, _ in told)
    (won,) = (text for code, text in told if code == 0)
    (lost,) = (text for code, text in told if code != 0)
    assert codes[1] in (1, 2)
    assert verdict_in(won).startswith("done: ")
    assert re.search(f"in another switch already|is in switch|at home on {twin.name} already", lost), lost
    assert "Traceback" not in lost
    print(f"told: one: {verdict_in(won)}; the other: {verdict_in(lost)}")
    rig.settled(twin.name, term + 1)
    assert rig.level() == [end + 1 for end in before]
    rig.same()
    # A plan of before is of another home, and begins nothing.
    with open_store(url_in(rig.rig.folder)) as store:
        late = run_switch(older, settings, store, SwitchCaller("carol", lambda _: None, threading.Event()))
    assert late.verdict().startswith(f"turned back: topic {TOPIC} is at home on {twin.name} in term {term + 1} by now")
    assert late.state.held_ms == 0
    rig.settled(twin.name, term + 1)


@pytest.mark.long
def test_a_drill_beside_a_switch_is_in_nobodys_way(rig: SwitchRig) -> None:
    twin, term = rig.sides()[1], rig.home()[1]
    (code, said), (drilled, why) = started(
        rig, f"run {TOPIC} --to {twin.name} --yes", f"drill {TOPIC} --to {twin.name}"
    )
    print("told:", code, said, drilled, why)
    assert code == 0, said
    assert drilled in (0, 1, 2)
    assert "Traceback" not in why
    rig.settled(twin.name, term + 1)
    rig.same()


def test_who_writes_during_the_hold_turns_it_back(rig: SwitchRig) -> None:
    """Where no authorizer runs nobody can be kept from it."""
    (home, twin), before = rig.sides(), rig.home()
    over = threading.Event()

    def write() -> None:
        producer = Producer(client_settings(home.cluster))
        while not over.wait(0.02):
            producer.produce(TOPIC, b"follows nobody", partition=2)
            producer.flush(5)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        said = rig.move(twin.name, "--hold-s", "3")
    finally:
        over.set()
        thread.join()
    print("told:", rig.record()["held_s"], said.text)
    assert mentions(said.text, "no authorizer")
    turned_back(rig, said, before, f"clients still write to {TOPIC}-2")


@pytest.mark.long
@pytest.mark.claim("switch", "late-produce", "a late request of the old link, let go behind the flip, is refused")
def test_a_late_request_of_the_old_link_is_refused(rig: SwitchRig) -> None:
    """It is the next one that the link's producer would send, and half of it is with the broker before the hold."""
    (home, twin), term = rig.sides(), rig.home()[1]
    points = rig.level()
    with closing(KafkaCluster(twin.cluster)) as kafka, open_store(url_in(rig.rig.folder)) as store:
        late = RawWriter(kafka, TOPIC)
        link = f"{home.name}->{twin.name}"
        identity = store.links.identity(link)
        assert identity is not None
        row = next(row for row in store.twins.of(link) if (row.topic, row.partition) == (TOPIC, 0))
        late.producer_id, late.epoch = identity.producer_id, written_epoch(identity.producer_epoch, row.epoch)
        fill(home, TOPIC, 1, partition=0)
        points = [points[0] + 1, *points[1:]]
        assert rig.level() == points
        known = state_of(late)
        assert known is not None and known[0] == late.epoch, "the link writes so"
        held = Held(late, 3, known[1] + 1)

        said = rig.move(twin.name)
        assert said.code == 0, said.text
        rig.settled(twin.name, term + 1)
        ends = [point + 1 for point in points]
        assert rig.level() == ends, "the fence takes one offset"
        before = [read(twin, TOPIC, number, "read_uncommitted") for number in range(3)]
        refused = held.let_go().error
        assert refused == Code.invalid_producer_epoch
        assert late.write(3, known[1] + 1).error == Code.invalid_producer_epoch, "and so is each that comes later"
        assert state_of(late) == (fence_epoch(late.epoch), -1)
    assert rig.level() == ends
    assert [read(twin, TOPIC, number, "read_uncommitted") for number in range(3)] == before
    print(f"told: refused with {Code(refused).name}; {twin.name} ends at {ends} before and after it")
    fill(twin, TOPIC, 2, partition=0)
    rig.same("read_uncommitted")


def test_a_mirror_that_does_not_run_holds_nobody(rig: SwitchRig) -> None:
    before, twin = rig.home(), rig.sides()[1]
    rig.level()
    rig.rig.process.end()
    try:
        said = rig.move(twin.name)
    finally:
        rig.rig.process.start()
    print("told:", said.text)
    assert "mirror" in said.text and said.code in (1, 2)
    assert "Traceback" not in said.text
    assert rig.record()["held_s"] == 0.0 or rig.record()["state"] == "done", "nobody waited for it"
    turned_back(rig, said, before, "mirror")


def test_a_group_alone_whose_consumers_are_too_early_stays_where_it_is(rig: SwitchRig) -> None:
    """On the other side too; and where it has read further there it is not set back. Then it comes home."""
    (home, twin), where = rig.sides(), rig.home()
    asked = ("--group", "faults-billing", "--to")
    read: list[tuple[int, int]] = []
    with written(home, TOPIC), Reading(home, TOPIC, "faults-billing", read):
        more(read, rig)
    rig.level()
    # Not of each partition, perhaps: it may have read enough before it came to one of them.
    stood = read_group_offsets(home.cluster, "faults-billing", TOPIC, range(3))
    assert max(stood) > 0
    until(
        lambda: read_group_offsets(twin.cluster, "faults-billing", TOPIC, range(3)) == stood, 120, "it follows", rig.rig
    )
    with written(home, TOPIC), Reading(twin, TOPIC, "faults-billing", read):
        more(read, rig)
        said = rig.switch("run", *asked, twin.name, "--yes")
        assert f"group faults-billing has members on {twin.name} already" in said.text, said.text
    read_on = read_group_offsets(twin.cluster, "faults-billing", TOPIC, range(3))
    assert read_on != stood
    # The reverse link's sync brings these offsets home within a round; until then a switch to the twin is refused.
    said = rig.switch("plan", *asked, twin.name)
    is_home = read_group_offsets(home.cluster, "faults-billing", TOPIC, range(3)) == read_on
    assert is_home or f"is further on on {twin.name} than on {home.name}" in said.text, said.text
    said = rig.switch("run", *asked, home.name, "--yes")
    assert said.code == 0, said.text
    there, here = (read_group_offsets(lab.cluster, "faults-billing", TOPIC, range(3)) for lab in (twin, home))
    assert there == here == read_on
    rig.settled(*where)


def test_a_command_that_fails_turns_it_back_and_its_fellow_hears_of_it(rig: SwitchRig, tmp_path: Path) -> None:
    (home, twin), where = rig.sides(), rig.home()
    kept, heard, program = rig.settings.read_text(), tmp_path / "heard", tmp_path / "gateway"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f"open({str(heard)!r}, 'a').write(os.environ['SWITCH_MOMENT'] + ' ' + os.environ['SWITCH_HOME'] + '\\n')\n"
        "sys.exit('the gateway is closed' if os.environ['SWITCH_MOMENT'] == 'before' else 0)\n"
    )
    program.chmod(0o755)
    rig.settings.write_text(f'{kept}\n[switch]\nbefore = ["{program}"]\nafter = ["{program}"]\n')
    try:
        said = rig.move(twin.name)
    finally:
        rig.settings.write_text(kept)
    assert mentions(said.text, f"`{program}`", "before")
    assert heard.read_text().split() == ["before", home.name, "after", home.name]
    assert rig.record()["held_s"] == 0.0, "nobody waited for it"
    turned_back(rig, said, where, "ended with 1")


def test_a_drill_says_whom_nothing_can_hold_and_whether_he_wrote(rig: SwitchRig) -> None:
    """Neither cluster has an authorizer, and this writer follows nobody."""
    home, twin = rig.sides()
    quiet = rig.switch("drill", TOPIC, "--to", twin.name)
    assert quiet.code == 0, quiet.text
    told = f"{home.name} has no authorizer: no writer can be kept from {TOPIC}"
    assert told in quiet.text and told in rig.switch("plan", TOPIC, "--to", twin.name).text
    assert f"no client wrote to {TOPIC} during the drill" in quiet.text, quiet.text
    stop = threading.Event()

    def writes() -> None:
        producer = Producer({**client_settings(home.cluster), "linger.ms": 0})
        while not stop.wait(0.02):
            producer.produce(TOPIC, b"written beside a drill", partition=0)
            producer.poll(0)
        assert producer.flush(30) == 0

    writer = threading.Thread(target=writes)
    writer.start()
    try:
        busy = rig.switch("drill", TOPIC, "--to", twin.name)
    finally:
        stop.set()
        writer.join()
    why = f"{TOPIC} was written during the drill by writers that nothing can hold: a switch would have turned back"
    print("told:", busy.last)
    assert (busy.code, busy.last.startswith(why)) == (1, True), busy.text


def test_a_plan_names_what_the_target_lacks_and_what_no_link_carries(rig: SwitchRig) -> None:
    home, twin = rig.sides()
    known = len(json.loads(rig.switch("history", "--json").text))
    assert mentions(rig.switch("plan", TOPIC, "--to", twin.name).text, "no authorizer")
    try:
        # The mirror gives the twin what the home has, and so takes this away again.
        def planned() -> str:
            alter_topic(twin.cluster, TOPIC, {"min.insync.replicas": "2"})
            said = rig.switch("plan", TOPIC, "--to", twin.name)
            return said.text if said.code and f"{TOPIC}-0 (1 of 2)" in said.text else ""

        until(lambda: bool(planned()), 60, "refused", rig.rig)
    finally:
        alter_topic(twin.cluster, TOPIC, {"min.insync.replicas": None})
    kept = rig.settings.read_text()
    for pause_percent in (0, 100):
        # As if that much were little; the mirror that runs has read its settings before.
        bounds = f"disk_warn_percent = 100\ndisk_pause_percent = {pause_percent}"
        rig.settings.write_text(kept.replace("disk_warn_percent = 0", bounds))
        try:
            said = rig.switch("plan", TOPIC, "--to", twin.name)
        finally:
            rig.settings.write_text(kept)
        assert f" of {twin.name} has " in said.text, said.text
        assert bool(said.code) is mentions(said.text, "nothing is written") is bool(pause_percent), said.text
    said = rig.switch("plan", "nobody-carries", "--to", twin.name)
    assert mentions(said.text, twin.name, "nobody-carries")
    assert mentions(said.text, f"a topic of {home.name}")
    assert len(json.loads(rig.switch("history", "--json").text)) == known


def test_a_twin_that_has_stopped_is_refused(rig: SwitchRig) -> None:
    """Nothing is begun, and the sentence names it."""
    home, twin = rig.sides()
    level, link = rig.level(), f"{home.name}->{twin.name}"
    known = len(json.loads(rig.switch("history", "--json").text))
    fill(twin, TOPIC, 1, partition=0)
    fill(home, TOPIC, 2, partition=0)
    until(lambda: bool([row for row in rig.rig.ledger(link) if row.closed_ms is None]), 30, "stopped", rig.rig)
    said = rig.move(twin.name)
    assert said.code != 0
    assert mentions(said.text, link, f"{TOPIC}-0"), said.text
    assert "twinshore status" in said.text
    assert len(json.loads(rig.switch("history", "--json").text)) == known
    assert rig.ends(home)[1:] == level[1:]
