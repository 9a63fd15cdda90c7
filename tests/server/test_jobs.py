"""Jobs run by real workers in processes of their own: planned, agreed to, cancelled, killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from testkit.console import Browser, first_admin, person, web_process
from testkit.errors import raises
from tests.switch.test_operations import saved
from tests.switch.test_waves import wave
from twinshore.config.errors import RefusedError
from twinshore.config.model import Plan
from twinshore.kafka.clock import wall_ms
from twinshore.server.job_process import JobRun, finish
from twinshore.server.remote import keep_token, token_file
from twinshore.state.core.platform_values import ENDED, JobRow, JobState
from twinshore.state.core.proxy_values import ProxyInstanceRow
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store, open_store
from twinshore.switch.core.steps import SwitchStatus
from twinshore.switch.operations.show import SwitchView

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
JOB = JobRow(
    id="j",
    operation="switch run",
    arguments="{}",
    state=JobState.RUNNING,
    requested_by="ada",
    created_ms=0,
    updated_ms=0,
    worker="w1",
)
OUTLIVES = "a job goes on when its worker is killed; one whose process is killed is unknown, and never repeated"


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
        """The process that holds the job's lease, by its owner."""
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            lease = self.store.leases.read(f"job {job}")
            found = re.search(r", process (\d+), [0-9a-f]{8}$", lease.owner) if lease else None
            if found and not (lease and lease.released):
                return psutil.Process(int(found[1]))
            time.sleep(0.02)
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
    asked = bob.api("POST", "/operations/link-list", {"json_output": True}).json()
    assert LINK not in stage.job(asked["id"], JobState.DONE).sentence, "an answer in JSON is no sentence"
    assert "link pause" in bob.get("/jobs").text


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


@pytest.mark.claim("platform", "four-eyes", "what destroys waits for another person, whichever token is used")
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


@pytest.mark.claim("platform", "jobs", OUTLIVES)
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
    assert [row.topic for row in stage.store.breakers.all()[1]] == ["orders", "orders"], "of producers, consumers"


@pytest.mark.claim("platform", "jobs", OUTLIVES)
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


@pytest.mark.parametrize("now", [replace(JOB, worker="w2"), replace(JOB, state=JobState.UNKNOWN, worker="")])
def test_a_process_whose_job_went_on_without_it_writes_and_begins_nothing(tmp_path: Path, now: JobRow) -> None:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        stale = store.jobs.add(JOB)
        row = store.jobs.swap(stale, now)
        with raises(RefusedError, "server.job-changed"):
            finish(store, stale, 0, "done", "", None)
        with raises(RefusedError, "server.job-changed"):
            JobRun(store, stale, "")._check(Plan())
        assert store.jobs.of("j") == row


def test_a_job_goes_on_with_the_waves_behind_the_one_that_its_dead_process_ended(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        row = store.jobs.add(JOB)
        run = JobRun(store, row, "")
        run._begin(saved(store, wave(1, SwitchStatus.DONE, "topic-2")).id)
        (row,) = store.jobs.for_workers()
        assert JobRun(store, row, "")._resumption() == ["switch", "resume", "1" * 32]
        run._begin(saved(store, wave(2, SwitchStatus.ROLLED_BACK, "topic-3")).id)
        (row,) = store.jobs.for_workers()
        assert isinstance(JobRun(store, row, "")._resumption(), SwitchView)


def test_workers_share_jobs_and_none_is_done_twice(stage: Stage, admin: Browser) -> None:
    stage.worker()
    stage.worker()
    bob = person(admin, "bob", "operator")
    jobs = [bob.api("POST", "/operations/link-list", {}).json()["id"] for _ in range(12)]
    rows = [stage.job(job, JobState.DONE) for job in jobs]
    assert all(row.exit_code == 0 for row in rows)
    lines = [stage.lines(job) for job in jobs]
    assert all(found == lines[0] for found in lines), "each printed once"


def test_jobs_of_another_version_break_nothing(stage: Stage, admin: Browser) -> None:
    for job in (
        replace(JOB, id="verb", operation="switch teleport", subject="s"),
        replace(JOB, id="untaken", operation="switch teleport", worker=""),
        replace(JOB, id="option", operation="groups", arguments='{"gone": 1}', state=JobState.DONE),
    ):
        stage.store.jobs.add(job)
    bob = person(admin, "bob", "admin")
    assert [row["command"] for row in bob.api("GET", "/jobs").json()["items"]] == [
        "switch teleport",
        "switch teleport",
        "groups",
    ]
    assert "switch teleport" in admin.get("/jobs").text
    assert admin.get("/jobs/option").status == 200
    stage.worker()
    asked = bob.api("POST", "/operations/link-list", {}).json()["id"]
    stage.job(asked, JobState.DONE)
    assert stage.job("untaken", JobState.RUNNING).worker == ""


def test_a_planned_job_is_cancelled_and_an_error_is_told(stage: Stage, admin: Browser) -> None:
    stage.worker()
    bob = person(admin, "bob", "operator")
    job = stage.planned(bob, "link-pause", link=LINK)
    assert bob.api("POST", f"/jobs/{job.id}/cancel", {}).json()["state"] == JobState.CANCELLED
    asked = bob.api("POST", "/operations/link-pause", {"link": "no->where"}).json()
    failed = stage.job(asked["id"], JobState.FAILED)
    assert failed.exit_code == 2 and "no->where" in failed.sentence
    assert stage.lines(failed.id)[0].startswith("error: ")


def twinshore(stage: Stage, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command, whose tokens are in the test's folder."""
    environment = {**os.environ, "XDG_CONFIG_HOME": str(stage.folder)}
    command = [sys.executable, "-m", "twinshore.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.claim(
    "platform", "same-answers", "the command line with `--server` prints and ends as with the settings of the clusters"
)
def test_a_command_line_gets_the_same_answers_from_a_platform(stage: Stage, admin: Browser) -> None:
    stage.worker()
    bob = person(admin, "bob", "operator")
    assert twinshore(stage, "link", "list", "--server", bob.base)[0] == 2, "not logged in"
    keep = {"XDG_CONFIG_HOME": str(stage.folder)}
    old = {name: os.environ.get(name) for name in keep}
    os.environ.update(keep)
    try:
        keep_token(bob.base, bob.token)
        assert token_file().stat().st_mode & 0o077 == 0
    finally:
        for name, value in old.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    settings = ("--settings", str(stage.settings))

    def same(*words: str, code: int = 0) -> None:
        here, there = (twinshore(stage, *words, *way) for way in (settings, ("--server", bob.base)))
        assert here[0] == there[0] == code, (words, here, there)
        assert [text.split() for text in there[1:]] == [text.split() for text in here[1:]], words

    same("link", "list")
    same("link", "list", "--json")
    same("link", "pause", LINK, "--dry-run")
    same("incidents", "--open")
    same("switch", "status", "--json")
    story = ("simulate", "story", "min-insync-1")
    assert twinshore(stage, *story, "--server", bob.base) == twinshore(stage, *story)
    assert twinshore(stage, "link", "pause", LINK, "--server", bob.base)[0] == 0
    assert [row.changed_by for row in stage.store.controls.of(LINK)] == ["bob"]
    same("link", "pause", LINK)  # there is nothing to change
    same("link", "pause", "no->where", code=2)
    same("incidents", "--link", "no->where", "--json", code=2)
    assert twinshore(stage, "link", "pause", LINK, "--odd", "--server", bob.base)[0] == 2
    assert twinshore(stage, "lab", "status", "--server", bob.base)[0] == 2
    assert twinshore(stage, "status", *settings, "--server", bob.base)[0] == 2
