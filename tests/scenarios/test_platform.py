"""The platform on real clusters: topics are switched by pages, under load, while processes of the platform die."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from testkit.clients import delete_all_topics
from testkit.console import Answer, Browser, first_admin, web_process
from testkit.databases import PostgresServer
from testkit.switch_under_load import told
from tests.proxy.served import ProxyProcess
from tests.scenarios.following_writer import Writing
from tests.scenarios.switch_rig import SwitchRig, carried
from tests.scenarios.test_following_writers import records, until, writers
from tests.scenarios.test_live_settings import OBEYED_S_MAX
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_proxy_processes import all_serve
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.proxy.operations.breakers import list_proxy_instances
from twinshore.state.core.platform_values import JobState, SnapshotKind
from twinshore.state.store import Store, open_store
from twinshore.switch.core.steps import SwitchState

LINK = "east->west"
HOW = Writing(records_per_s=200)


class Pages:
    """Pages over a store, and workers as processes, which go by `settings`."""

    def __init__(self, settings: Path, store: Store, admin: Browser) -> None:
        self.settings, self.store, self.admin = settings, store, admin
        self.workers: list[subprocess.Popen[bytes]] = []

    def worker(self) -> None:
        command = [sys.executable, "-m", "twinshore.cli", "serve", "--worker", "--settings", str(self.settings)]
        with (self.settings.parent / f"worker-{len(self.workers)}.log").open("wb") as said:
            self.workers.append(subprocess.Popen(command, stdout=said, stderr=said))

    def end(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()

    def said(self) -> str:
        return "\n".join(one.read_text(encoding="utf-8") for one in self.settings.parent.glob("worker-*.log"))

    def plan(self, operation: str, **fields: str) -> Answer:
        """Fills in a form, and waits for the plan."""
        asked = self.admin.submit(f"/do/{operation}", f"/do/{operation}", **fields)
        assert asked.status == 200, asked.text[-1500:]
        return self.admin.job(asked.url.removeprefix(self.admin.base), JobState.PLANNED, JobState.FAILED, JobState.DONE)

    def agree(self, page: Answer, typed: str) -> str:
        """Types the name and agrees. Returns the job's path."""
        path = page.url.removeprefix(self.admin.base)
        sent = self.admin.post(f"{path}/apply", None, csrf=page.field("csrf"), digest=page.field("digest"), typed=typed)
        assert sent.status == 200, sent.fault
        return path

    def ended(self, path: str, state: JobState = JobState.DONE) -> Answer:
        return self.admin.job(path, state, within_s=180)

    def did(self, operation: str, typed: str, **fields: str) -> Answer:
        return self.ended(self.agree(self.plan(operation, **fields), typed))

    def looked(self, page: str, operation: str) -> Answer:
        """Asks a report's page to look again, and waits for the answer."""
        self.admin.submit(page, f"/do/{operation}", json_output="on")
        until(lambda: "A worker looks now." not in self.admin.get(page).text, 60, self.said())
        return self.admin.get(page)


class PlatformStage(Pages):
    """A mirror both ways, and a topic under load."""

    def __init__(self, rig: SwitchRig, store: Store, admin: Browser) -> None:
        super().__init__(rig.settings, store, admin)
        self.rig = rig

    def moved(self, to: str, **fields: str) -> Answer:
        return self.did("switch-run", to, topics=self.rig.topic, to=to, **fields)

    def paused(self) -> None:
        """Pauses the link, and waits until it is."""
        self.did("link-pause", LINK, link=LINK)
        where = f"/links/{LINK.replace('>', '%3E')}"
        until(lambda: "nothing is replicated" in self.admin.get(where).lead, 60, self.said())

    def job_process(self, job: str) -> int:
        """The process that holds the job's lease, by its owner."""
        lease = self.store.leases.read(f"job {job}")
        found = re.search(r", process (\d+), [0-9a-f]{8}$", lease.owner) if lease else None
        assert found, lease
        return int(found[1])

    def switch(self) -> SwitchState:
        return SwitchState.from_json(self.store.switches.all()[0].switch_state)


@contextmanager
def platform(east: LabCluster, west: LabCluster, topic: str, folder: Path, *, url: str = "") -> Iterator[PlatformStage]:
    """`url`: of the store; empty: a file."""
    with ExitStack() as stack:
        rig = stack.enter_context(carried(east, west, topic, folder, store=url))
        store = stack.enter_context(open_store(url or f"sqlite:///{folder / 'store.db'}"))
        base = stack.enter_context(web_process(store))
        stage = PlatformStage(rig, store, first_admin(store, base))
        stage.worker()
        try:
            yield stage
        finally:
            stage.end()


@contextmanager
def under_load(stage: PlatformStage) -> Iterator[Callable[[str], None]]:
    """Two writers that follow the topic. At the end each acknowledged record lies at its offset at the home. Yields a
    function that waits until they write at a cluster.
    """
    rig = stage.rig
    ours = writers(rig.topic, 2, HOW, rig.east, rig.west)

    def at(cluster: str) -> None:
        def are_there() -> bool:
            return all(one.acked and one.acked[-1].cluster == cluster for one in ours)

        deadline_s = time.monotonic() + 60
        while not are_there():
            stands = [(one.acked[-1:], one.failed, one.moves[-2:]) for one in ours]
            assert time.monotonic() < deadline_s, f"they do not write at {cluster}: {stands}"
            time.sleep(0.02)

    with ours[0], ours[1]:
        at(rig.home()[0])
        yield at
        counts = [len(one.acked) for one in ours]
        until(
            lambda: all(len(one.acked) > count + 100 for one, count in zip(ours, counts, strict=True)), 60, "they go on"
        )
    home, _ = rig.sides()
    places = {
        (partition, offset): (key, value)
        for partition in range(rig.partitions)
        for offset, key, value in records(home, rig.topic, partition)
    }
    for one in (acked for writer in ours for acked in writer.acked):
        key, value = places[one.partition, one.offset]
        assert (key, told(value, HOW.keys)) == (one.key, one.number)
    acked = sum(len(writer.acked) for writer in ours)
    assert len(places) == acked + 10 * rig.partitions, "nothing is there twice"
    assert all(not writer.failed for writer in ours)
    print(f"told: {acked} records acknowledged under load, each at its offset, none twice")
    rig.same()


@pytest.mark.claim(
    "platform",
    "pages",
    "a topic's drill, planned switch and way back are clicked through on two real clusters under load: nothing is lost,"
    " nothing is there twice",
)
def test_a_topic_is_switched_there_and_back_by_pages(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    for lab in (east, west):
        delete_all_topics(lab.cluster)  # another test's heartbeats would be refused, and all is well at the end
    with platform(east, west, unique_topic, tmp_path) as stage:
        until(lambda: stage.store.snapshots.of(SnapshotKind.OVERVIEW, "all") is not None, 60, stage.said())
        with under_load(stage) as at:
            drill = stage.did("switch-drill", "west", topics=unique_topic, to="west")
            assert "nothing stands in the way" in drill.text
            page = stage.plan("switch-run", topics=unique_topic, to="west")
            wrong = stage.admin.post(
                f"{page.url.removeprefix(stage.admin.base)}/apply",
                None,
                csrf=page.field("csrf"),
                digest=page.field("digest"),
                typed="east",
            )
            assert (wrong.status, wrong.fault) == (409, "the confirmation must be west")
            done = stage.ended(stage.agree(page, "west"))
            assert "at home on west" in done.text
            at("west")
            stage.moved("east")
            at("east")
        stage.rig.settled("east", 3)
        shown = stage.admin.get(f"/topics/{LINK.replace('>', '%3E')}/{unique_topic}")
        assert shown.status == 200 and "End on west" in shown.text
        # Heartbeats go on: now and then one is on its way.
        well = ("Everything is replicated", "All links replicate")
        until(
            lambda: stage.admin.get("/").lead.startswith(well),
            60,
            lambda: stage.admin.get("/links/west-%3Eeast").text + stage.rig.rig.process.said[-3000:],
        )
        switches = stage.admin.get("/switch").text
        assert switches.count(f"{unique_topic}") >= 3 and "No switch is under way." in switches


@pytest.mark.claim(
    "platform",
    "killed",
    "the process of a switch's job and its worker are killed while writers wait: another worker goes on with it,"
    " nothing is lost, nothing is done twice",
)
def test_a_switch_whose_worker_dies_is_gone_on_with_by_another(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    with platform(east, west, unique_topic, tmp_path) as stage, under_load(stage) as at:
        stage.worker()
        page = stage.plan("switch-run", topics=unique_topic, to="west", hold_s="60")
        path = stage.agree(page, "west")
        job = path.rpartition("/")[2]

        def began() -> bool:
            row = stage.store.jobs.of(job)
            return bool(row and row.subject and stage.store.switches.of(row.subject))

        until(began, 60, stage.said())
        until(lambda: stage.switch().held_ms > 0 or stage.switch().committed, 60, "writers are held")
        os.kill(stage.job_process(job), signal.SIGKILL)
        row = stage.store.jobs.of(job)
        taken_by = re.search(r"process (\d+)", row.worker) if row else None
        assert taken_by
        next(worker for worker in stage.workers if worker.pid == int(taken_by[1])).kill()
        struck_s, step = time.monotonic(), stage.switch().step
        done = stage.ended(path)
        row = stage.store.jobs.of(job)
        assert row is not None and row.exit_code in (0, 1), done.text
        # The mirror lets writers go on whose switch nothing goes on with: that is as safe.
        home = "west" if row.exit_code == 0 else "east"
        at(home)
        print(f"told: killed at step {step.words!r}, ended {time.monotonic() - struck_s:.1f} s later: {row.sentence}")
        assert len(stage.store.switches.all()) == 1
        stage.rig.settled(home, 2 if home == "west" else 1)


@pytest.mark.claim(
    "platform",
    "records",
    "a record of both sides is shown beside each other by page, and each look is in the audit; values are shown only"
    " when asked for and agreed to",
)
def test_records_of_both_sides_are_shown(east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path) -> None:
    with platform(east, west, unique_topic, tmp_path) as stage:
        fields = {"topic": unique_topic, "partition": "1", "offset": "3", "link": LINK}
        asked = stage.admin.submit("/do/mirror-records", "/do/mirror-records", **fields)
        found = stage.ended(asked.url.removeprefix(stage.admin.base))
        assert "the two sides have the same record" in found.text and "value" not in found.text.split("Lines")[1]
        page = stage.plan("mirror-records", **fields, values="on")
        assert "value" in stage.ended(stage.agree(page, unique_topic)).text
        kinds = [row.after for row in stage.store.audit.rows() if row.kind == "records shown"]
        assert kinds == ["with values", "without values"]
        gone = stage.admin.submit("/do/mirror-records", "/do/mirror-records", **{**fields, "offset": "99"})
        assert "no record" in stage.ended(gone.url.removeprefix(stage.admin.base)).text


@pytest.mark.claim(
    "platform",
    "lost",
    "a forced switch, the fail-back and the write-back of what never crossed are clicked through: each record that the"
    " old home alone had is written once to the new one",
)
@pytest.mark.long
def test_a_forced_switch_is_failed_back_and_rescued_by_pages(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    with platform(east, west, unique_topic, tmp_path) as stage:
        stage.paused()
        for partition in range(3):
            fill(east, unique_topic, 4, partition=partition)
        forced = stage.moved("west", force="on", alive="east")
        assert "at home on west" in forced.text, forced.text[-2000:]
        for partition in range(3):
            fill(west, unique_topic, 2, partition=partition)
        stage.did("link-resume", LINK, link=LINK)
        back = stage.did("switch-failback", unique_topic, topics=unique_topic, old="east")
        assert "12 records rescued" in back.text, back.text[-2000:]
        stage.rig.same()
        shown = stage.looked("/rescue", "switch-rescue-list")
        assert shown.lead == "3 rescues, 3 of them not written back whole."
        for name in sorted(set(re.findall(r"files=([^\"&]+\.jsonl)", shown.body))):
            stage.did("switch-rescue-reinject", name, files=name)
        shown = stage.looked("/rescue", "switch-rescue-list")
        assert shown.lead == "3 rescues, 0 of them not written back whole."
        refused = stage.admin.submit("/do/switch-rescue-reinject", "/do/switch-rescue-reinject", files="../store.db")
        assert (refused.status, "a file's name without its folder" in refused.text) == (400, True)
        stage.rig.same()
        found = [list(records(west, unique_topic, partition)) for partition in range(3)]
        assert [len(one) for one in found] == [16] * 3, "10 carried, 2 at the new home, 4 written back once"
        print("told: 12 records were at the old home alone, and each was written back once")


@pytest.mark.claim(
    "platform",
    "differs",
    "from the overview's incident 'differs' three clicks lead to both records beside each other, and the look is in the"
    " audit",
)
def test_from_an_incident_to_both_records_in_three_clicks(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    with platform(east, west, unique_topic, tmp_path) as stage:
        stage.paused()
        fill(east, unique_topic, 1, partition=1)
        stranger = Producer(client_settings(west.cluster))
        stranger.produce(unique_topic, b"another value", b"key 0", partition=1)
        assert stranger.flush(30) == 0
        offset = 10
        asked = stage.admin.submit("/do/prove", "/do/prove", topic=unique_topic, link=LINK)
        proved = stage.ended(asked.url.removeprefix(stage.admin.base))
        assert "NOT identical" in proved.text, proved.text[-2000:]
        until(lambda: f"{unique_topic}-1" in stage.admin.get("/").text, 60, stage.said())
        [where] = set(re.findall(r'href="(/incidents/\d+)"', stage.admin.get("/").body))
        incident = stage.admin.get(where)
        assert str(offset) in incident.text
        [form] = re.findall(r'href="(/do/mirror-records[^"]+)"', incident.body)
        filled = stage.admin.get(unescape(form))
        fields = dict(parse_qsl(urlsplit(unescape(form)).query))
        assert fields == {"topic": unique_topic, "partition": "1", "offset": str(offset), "link": LINK}
        asked = stage.admin.post("/do/mirror-records", None, csrf=filled.field("csrf"), **fields)
        found = stage.ended(asked.url.removeprefix(stage.admin.base))
        assert f"{LINK}: the two sides differ" in found.text, found.text[-2000:]
        assert [row.kind for row in stage.store.audit.rows() if row.kind == "records shown"] == ["records shown"]
        print(f"told: {unique_topic}-1 differs at {offset}: overview, incident, form, both records")


STORE_AWAY = (
    "platform",
    "store-killed",
    "the store is away under load: pages say so with the age of what they show, changes are refused, writers go on, the"
    " mirror goes on while its lease lasts; once the store is back, so are the mirror, pages and changes",
)
WHOLE_MINUTE = pytest.mark.claim(*STORE_AWAY, full_size=True)


@pytest.mark.long
@pytest.mark.parametrize(
    "away_s", [pytest.param(15, marks=pytest.mark.claim(*STORE_AWAY)), pytest.param(60, marks=WHOLE_MINUTE)]
)
def test_the_store_is_away_under_load(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path, away_s: int
) -> None:
    with (
        PostgresServer() as database,
        platform(east, west, unique_topic, tmp_path, url=database.new_database()) as stage,
        under_load(stage) as at,
    ):
        until(lambda: stage.store.snapshots.of(SnapshotKind.OVERVIEW, "all") is not None, 60, stage.said())
        token = stage.admin.get("/do/link-pause").field("csrf")
        assert stage.admin.get("/").status == 200
        ends = stage.rig.ends(west)
        os.kill(database.pid, signal.SIGKILL)
        began_s = time.monotonic()
        until(lambda: "The store does not answer" in stage.admin.get("/").text, 30, "the page says so")
        shown = stage.admin.get("/")
        assert shown.status == 200 and " ago. Nothing can be changed" in shown.text, shown.text[:1500]
        refused = stage.admin.post("/do/link-pause", None, csrf=token, link=LINK)
        assert refused.status == 503, refused.text[:500]
        time.sleep(max(0.0, away_s - (time.monotonic() - began_s)))
        at("east")
        there = stage.rig.ends(east)
        assert sum(there) > sum(ends) + away_s * 10, "writers go on"
        carried_then = sum(stage.rig.ends(west)) - sum(ends)
        assert carried_then > 0, "the mirror goes on at first"
        database.revive()
        until(lambda: "The store does not answer" not in stage.admin.get("/").text, 60, "pages are back")
        back_s = time.monotonic()
        until(lambda: sum(stage.rig.ends(west)) >= sum(there), 60, "what was written is carried")
        caught_s = time.monotonic() - back_s
        stage.paused()
        stage.did("link-resume", LINK, link=LINK)
        grown = sum(there) - sum(ends)
        print(
            f"told: away for {away_s} s: {grown:,} records written, {carried_then:,} of them carried then and the rest"
            f" {caught_s:.1f} s after it was back"
        )


def obeyed_s(pages: Pages, path: str) -> float:
    """How long both processes of a proxy took to go by what the job changed."""
    before = pages.store.proxies.changes()
    until(lambda: pages.store.proxies.changes() > before, 60, pages.said())
    began_s = time.monotonic()
    until(lambda: [one["status"] for one in list_proxy_instances(pages.store)] == ["serves"] * 2, 10, "both obey")
    took_s = time.monotonic() - began_s
    pages.ended(path)
    return took_s


def held_s(store: Store, group: str) -> float:
    """How long after the reset's begin both processes held the group."""

    def held() -> list[int]:
        runs = {row.run: row.since_ms for row in store.proxy_resets.all()[1] if row.group == group}
        return [one.at_ms - since_ms for run, since_ms in runs.items() for one in store.proxy_resets.statuses(run)]

    until(lambda: len(held()) == 2, 60, "both hold the group")
    return max(held()) / 1000


@pytest.mark.claim(
    "platform",
    "obeyed",
    "a circuit breaker is opened, a route set and a group's offsets reset by page: both processes of a proxy go by it"
    " within 2 s, without a restart",
)
def test_proxies_obey_pages(east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path) -> None:
    east.create_topic(unique_topic)
    fill(east, unique_topic, 10)
    with ExitStack() as stack:
        proxy = ProxyProcess(tmp_path, [east.cluster, west.cluster], more="processes = 2\n")
        stack.callback(proxy.close)
        store = stack.enter_context(open_store(proxy.url))
        proxy.launch()
        pages = Pages(proxy.settings, store, first_admin(store, stack.enter_context(web_process(store))))
        pages.worker()
        stack.callback(pages.end)
        all_serve(proxy)
        client = {"bootstrap.servers": proxy.bootstrap}
        producer = Producer({**client, "message.timeout.ms": 3_000})
        errors: list[object] = []

        def is_written() -> bool:
            errors.clear()
            producer.produce(unique_topic, b"x", on_delivery=lambda error, _: errors.append(error))
            producer.flush(20)
            return all(error is None for error in errors)

        assert is_written()
        opened = pages.plan("proxy-breaker-open", topic=unique_topic, produce="on", reason="tried")
        took = {"breaker": obeyed_s(pages, pages.agree(opened, unique_topic))}
        assert not is_written()
        pages.did("proxy-breaker-close", unique_topic, topic=unique_topic)
        assert is_written()

        key = f'proxy.new_topics_by_name."{unique_topic}-*"'
        took["route"] = obeyed_s(pages, pages.agree(pages.plan("settings-set", key=key, value="west"), key))
        made = NewTopic(f"{unique_topic}-new", 1, 1)
        admin = AdminClient({**client})
        admin.create_topics([made])[made.topic].result(30)
        assert made.topic in AdminClient(client_settings(west.cluster)).list_topics(timeout=10).topics
        assert "store, ada" in pages.looked("/settings", "settings-show").text

        consumer = Consumer({**client, "group.id": unique_topic, "auto.offset.reset": "earliest"})
        stack.callback(consumer.close)
        consumer.subscribe([unique_topic])
        read: list[int] = []

        def reads(offset: int) -> bool:
            if (found := consumer.poll(0.2)) is not None and found.error() is None:
                read.append(found.offset() or 0)
            return offset in read

        until(lambda: reads(9), 60, "it is read")
        consumer.commit(asynchronous=False)
        read.clear()
        path = pages.agree(pages.plan("proxy-offsets", group=unique_topic, to_earliest="on"), unique_topic)
        took["reset"] = held_s(store, unique_topic)
        until(lambda: reads(0), 60, "it reads from the beginning")
        pages.ended(path)
        figures = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in took.items())
        print(f"told: until both processes went by it: {figures}")
        assert max(took.values()) < OBEYED_S_MAX
