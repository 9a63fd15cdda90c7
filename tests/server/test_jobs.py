"""Jobs run by real workers in processes of their own: planned, agreed to, cancelled, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from testkit.console import Browser, first_admin, person, web_process
from twinshore.kafka.clock import wall_ms
from twinshore.state.core.platform_values import ENDED, JobRow, JobState
from twinshore.state.core.proxy_values import ProxyInstanceRow
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store, open_store

SETTINGS = """
[store]
url = "sqlite:///{folder}/store.db"
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[links."east->west"]
topics = ["orders.*"]
[serve]
four_eyes = true
"""
LINK = "east->west"


class Stage:
    """A store, its console, and workers as processes."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store
        self.settings = folder / "twinshore.toml"
        self.settings.write_text(SETTINGS.format(folder=folder), encoding="utf-8")
        self.workers: list[subprocess.Popen[bytes]] = []

    def worker(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "twinshore.cli", "serve", "--worker", "--settings", str(self.settings)]
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as said:
            self.workers.append(subprocess.Popen(command, stdout=said, stderr=said))
        return self.workers[-1]

    def said(self) -> str:
        return "\n".join(file.read_text(encoding="utf-8") for file in sorted(self.folder.glob("worker-*.log")))

    def job(self, job: str, *states: JobState, within_s: float = 90.0) -> JobRow:
        until_s = time.monotonic() + within_s
        while True:
            row = self.store.jobs.of(job)
            assert row is not None
            if row.state in states:
                return row
            assert time.monotonic() < until_s and row.state not in ENDED, f"{row}\n{self.said()}"
            time.sleep(0.05)

    def planned(self, browser: Browser, operation: str, **arguments: object) -> JobRow:
        asked = browser.api("POST", f"/operations/{operation}", arguments)
        assert asked.status == 202, asked.body
        return self.job(asked.json()["id"], JobState.PLANNED)

    def apply(self, browser: Browser, job: JobRow) -> None:
        applied = browser.api("POST", f"/jobs/{job.id}/apply", {"digest": job.digest, "reason": "a test"})
        assert applied.status == 202, applied.body

    def lines(self, job: str) -> list[str]:
        return [line.text for line in self.store.jobs.lines(job)]

    def process_of(self, job: str) -> psutil.Process:
        """The process that runs the job: the leader of a group of its own, below a worker."""
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            owner = self.store.leases.read(f"job {job}")
            for process in psutil.process_iter(["pid", "cmdline"]):
                words = process.info["cmdline"] or []
                if owner and "forkserver" in " ".join(words) and os.getpgid(process.pid) == process.pid:
                    return process
            time.sleep(0.05)
        raise AssertionError("no process of a job")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        made = Stage(tmp_path, store)
        try:
            yield made
        finally:
            for worker in made.workers:
                for child in psutil.Process(worker.pid).children(recursive=True) if worker.poll() is None else []:
                    child.kill()
                worker.kill()
                worker.wait()


@pytest.fixture
def admin(stage: Stage) -> Iterator[Browser]:
    with web_process(stage.store, four_eyes=True) as base:
        yield first_admin(stage.store, base)


def slow_proxy(store: Store) -> None:
    """A proxy that reports and never applies a change: opening a breaker waits three seconds for it."""
    row = ProxyInstanceRow("p", "p", "host", 1, wall_ms(), 0, wall_ms() + 5_000)
    store.proxies.tell(row, [], [])


def test_what_was_planned_and_agreed_to_is_done(stage: Stage, admin: Browser) -> None:
    stage.worker()
    bob = person(admin, "bob", "operator")
    job = stage.planned(bob, "link-pause", link=LINK)
    assert "paused would change from false to true" in job.plan
    assert not stage.store.controls.of(LINK), "nothing has changed"
    wrong = bob.api("POST", f"/jobs/{job.id}/apply", {"digest": "x"})
    assert (wrong.status, wrong.json()["digest"]) == (409, job.digest)
    stage.apply(bob, job)
    ended = stage.job(job.id, JobState.DONE)
    assert ended.exit_code == 0
    assert stage.lines(job.id) == [f"{LINK}: paused changes from false to true"]
    (row,) = stage.store.controls.of(LINK)
    assert (row.name, row.value, row.changed_by) == ("paused", "true", "bob")
    kinds = [(row.kind, row.actor) for row in stage.store.audit.rows()]
    assert ("job", "bob, by token test") in kinds and ("control", "bob") in kinds

    # What reads runs at once, and says what the command line says.
    asked = bob.api("POST", "/operations/link-list", {}).json()
    stage.job(asked["id"], JobState.DONE)
    assert any(line.strip().startswith("paused = true") for line in stage.lines(asked["id"]))


def test_a_plan_that_has_changed_is_not_carried_out(stage: Stage, admin: Browser) -> None:
    stage.worker()
    bob, eve = person(admin, "bob", "operator"), person(admin, "eve", "operator")
    one = stage.planned(bob, "link-filter", link=LINK, topics=["orders.a"])
    other = stage.planned(eve, "link-filter", link=LINK, topics=["orders.b"])
    stage.apply(eve, other)
    stage.job(other.id, JobState.DONE)
    stage.apply(bob, one)
    refused = stage.job(one.id, JobState.FAILED)
    assert "has changed since it was planned" in refused.sentence
    assert "orders.b" in next(row.value for row in stage.store.controls.of(LINK))


def test_four_eyes(stage: Stage, admin: Browser) -> None:
    stage.store.twins.save([TwinRow(LINK, "orders", 0, "a" * 32, "b" * 32, 0, 0, wall_ms())])
    stage.worker()
    bob, eve = person(admin, "bob", "operator"), person(admin, "eve", "approver")
    job = stage.planned(bob, "mirror-forget", topic="orders")
    stage.apply(bob, job)
    assert stage.job(job.id, JobState.ASKED).state is JobState.ASKED
    approve = {"digest": job.digest}
    assert bob.api("POST", f"/jobs/{job.id}/approve", approve).status == 409, "not an approver, and the requester"
    assert eve.api("POST", f"/jobs/{job.id}/approve", {"digest": "x"}).status == 409
    assert stage.store.twins.of(LINK), "it waits"
    page = eve.get(f"/jobs/{job.id}")
    assert eve.post(f"/jobs/{job.id}/approve", csrf=page.field("csrf"), digest=job.digest).status == 200
    done = stage.job(job.id, JobState.DONE)
    assert (done.requested_by, done.approved_by) == ("bob", "eve")
    assert not stage.store.twins.of(LINK)

    # An approver's own job waits for another one, whichever token is used.
    stage.store.twins.save([TwinRow(LINK, "orders", 0, "a" * 32, "b" * 32, 0, 0, wall_ms())])
    own = stage.planned(eve, "mirror-forget", topic="orders")
    stage.apply(eve, own)
    stage.job(own.id, JobState.ASKED)
    page = eve.get(f"/jobs/{own.id}")
    assert "another person than its requester" in page.text
    assert eve.post(f"/jobs/{own.id}/approve", csrf=page.field("csrf"), digest=own.digest).status == 409


def test_a_job_outlives_its_worker(stage: Stage, admin: Browser) -> None:
    worker = stage.worker()
    bob = person(admin, "bob", "operator")
    slow_proxy(stage.store)
    job = stage.planned(bob, "proxy-breaker-open", topic="orders", reason="test")
    slow_proxy(stage.store)
    stage.apply(bob, job)
    stage.job(job.id, JobState.RUNNING)
    process = stage.process_of(job.id)
    worker.kill()
    worker.wait()
    assert stage.job(job.id, JobState.DONE).exit_code == 0
    process.wait(30)
    assert [row.topic for row in stage.store.proxies.breakers()[1]] == ["orders", "orders"], "of producers, consumers"


def test_a_job_whose_process_dies_is_unknown_and_never_repeated(stage: Stage, admin: Browser) -> None:
    stage.worker()
    bob = person(admin, "bob", "operator")
    slow_proxy(stage.store)
    job = stage.planned(bob, "proxy-breaker-open", topic="orders", reason="test")
    slow_proxy(stage.store)
    stage.apply(bob, job)
    stage.job(job.id, JobState.RUNNING)
    stage.process_of(job.id).send_signal(signal.SIGKILL)
    stage.workers[0].kill()
    stage.worker()
    unknown = stage.job(job.id, JobState.UNKNOWN)
    assert unknown.exit_code is None and "ended" in unknown.sentence


def test_workers_share_jobs_and_none_is_done_twice(stage: Stage, admin: Browser) -> None:
    stage.worker()
    stage.worker()
    bob = person(admin, "bob", "operator")
    jobs = [bob.api("POST", "/operations/link-list", {}).json()["id"] for _ in range(12)]
    rows = [stage.job(job, JobState.DONE) for job in jobs]
    assert all(row.exit_code == 0 for row in rows)
    lines = [stage.lines(job) for job in jobs]
    assert all(found == lines[0] for found in lines), "each printed once"


def test_a_planned_job_is_cancelled_and_an_error_is_told(stage: Stage, admin: Browser) -> None:
    stage.worker()
    bob = person(admin, "bob", "operator")
    job = stage.planned(bob, "link-pause", link=LINK)
    assert bob.api("POST", f"/jobs/{job.id}/cancel", {}).json()["state"] == JobState.CANCELLED
    asked = bob.api("POST", "/operations/link-pause", {"link": "no->where"}).json()
    failed = stage.job(asked["id"], JobState.FAILED)
    assert failed.exit_code == 2 and "no->where" in failed.sentence
    assert stage.lines(failed.id)[0].startswith("error: ")


def test_secrets_of_the_settings_are_in_no_page_and_no_job(stage: Stage, admin: Browser) -> None:
    text = stage.settings.read_text(encoding="utf-8")
    secret = "planted-secret-4711"
    security = f'[clusters.east.security]\nsasl = "PLAIN"\nusername = "u"\npassword_env = "PLANTED"\n{text[:0]}'
    stage.settings.write_text(f"{text}\n{security}", encoding="utf-8")
    os.environ["PLANTED"] = secret
    try:
        stage.worker()
        bob = person(admin, "bob", "operator")
        jobs = [bob.api("POST", f"/operations/{name}", {}).json()["id"] for name in ("link-list", "topology", "status")]
        for job in jobs:
            stage.job(job, JobState.DONE, JobState.FAILED)
            assert secret not in bob.get(f"/jobs/{job}").body
            assert secret not in "\n".join(stage.lines(job))
        for path in ("/", "/links", "/topics", "/audit", "/do", "/jobs"):
            assert secret not in admin.get(path).body
        assert secret not in stage.said()
    finally:
        del os.environ["PLANTED"]
