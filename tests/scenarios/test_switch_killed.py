"""The process of a switch is killed at its steps; somebody ends it, one way or the other, and nothing is left over."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from tests.scenarios.switch_rig import SwitchRig, carried, short_leases
from tests.scenarios.test_mirror_basic import fill
from twinshore.lab.cluster import LabCluster
from twinshore.switch.core.steps import STEPS, SwitchKind, SwitchStep

__all__ = ["short_leases"]
TOPIC = "killed-orders"
WHEN = ("before", "first", "behind")
EARLY = STEPS[SwitchKind.PLANNED][: STEPS[SwitchKind.PLANNED].index(SwitchStep.COMMIT) + 1]
pytestmark = pytest.mark.usefixtures("short_leases")


@pytest.fixture(scope="module")
def rig(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchRig]:
    with carried(east, west, TOPIC, tmp_path_factory.mktemp("killed")) as made:
        yield made


def killed_and_ended(rig: SwitchRig, step: str, when: str, verb: str, *words: str) -> None:
    """The switch is killed there; `verb` ends it, one way or the other."""
    (home, twin), term = rig.sides(), rig.home()[1]
    before = rig.level()
    rig.killed(step, when, "run", TOPIC, "--to", twin.name, "--yes", *words)
    said = rig.switch(verb)
    print(f"told: {step}, {when}, {verb}: {said.last}")
    moved = said.last.startswith("done: ")
    assert moved or said.last.startswith("turned back: "), said.text
    assert said.code == (0 if moved or verb == "rollback" else 1), said.text
    assert not (moved and verb == "rollback"), said.text
    home, term = (twin, term + 1) if moved else (home, term)
    rig.settled(home.name, term)
    assert rig.level() == [end + (1 if moved else 0) for end in before], "one offset of each partition is the fence's"
    fill(home, TOPIC, 2, partition=term % 3)
    rig.same("read_uncommitted")
    assert not [row for link in ("east->west", "west->east") for row in rig.rig.ledger(link) if row.closed_ms is None]


@pytest.mark.long
@pytest.mark.claim(
    "switch", "killed-on-brokers", "killed at its steps on brokers, gone on with or turned back: equal on both"
)
@pytest.mark.parametrize(
    ("step", "when", "verb"),
    [
        pytest.param(SwitchStep.STOP_REPLICATION, "behind", "rollback", marks=pytest.mark.long),
        (SwitchStep.FENCE, "first", "resume"),
        pytest.param(SwitchStep.PROMOTE, "behind", "resume", marks=pytest.mark.long),
    ],
)
def test_killed_where_it_matters_most(rig: SwitchRig, step: SwitchStep, when: str, verb: str) -> None:
    killed_and_ended(rig, step, when, verb)


@pytest.mark.claim(
    "switch",
    "killed-on-brokers",
    "killed at its steps on brokers, gone on with or turned back: equal on both",
    full_size=True,
)
@pytest.mark.long
@pytest.mark.parametrize(("step", "when"), list(product(STEPS[SwitchKind.PLANNED], WHEN)))
def test_killed_at_each_step_it_is_gone_on_with(rig: SwitchRig, step: SwitchStep, when: str) -> None:
    killed_and_ended(rig, step, when, "resume")


@pytest.mark.claim(
    "switch",
    "killed-on-brokers",
    "killed at its steps on brokers, gone on with or turned back: equal on both",
    full_size=True,
)
@pytest.mark.long
@pytest.mark.parametrize(("step", "when"), list(product(EARLY, WHEN)))
def test_killed_before_its_point_of_no_return_it_is_turned_back(rig: SwitchRig, step: SwitchStep, when: str) -> None:
    killed_and_ended(rig, step, when, "rollback")


@pytest.mark.long
@pytest.mark.claim(
    "switch", "killed-on-brokers", "killed at its steps on brokers, gone on with or turned back: equal on both"
)
def test_killed_on_its_way_back_it_still_turns_back(rig: SwitchRig) -> None:
    killed_on_its_way_back(rig, SwitchStep.HOLD, "behind")


@pytest.mark.claim(
    "switch",
    "killed-on-brokers",
    "killed at its steps on brokers, gone on with or turned back: equal on both",
    full_size=True,
)
@pytest.mark.long
@pytest.mark.parametrize("step", [step for step in EARLY if step.spec.undoes])
@pytest.mark.parametrize("when", ["before", "behind"])
def test_killed_at_each_step_of_its_way_back_it_still_turns_back(rig: SwitchRig, step: SwitchStep, when: str) -> None:
    killed_on_its_way_back(rig, step, when)


@pytest.mark.long
@pytest.mark.claim("switch", "killed-forced", "forced, killed at three steps on brokers, gone on with: equal on both")
@pytest.mark.parametrize(
    ("step", "when"), [(SwitchStep.CATCH_UP, "first"), (SwitchStep.FENCE, "first"), (SwitchStep.PROMOTE, "behind")]
)
def test_forced_it_is_gone_on_with(rig: SwitchRig, step: SwitchStep, when: str) -> None:
    """The old home answers, and is not asked: so both can be compared at once."""
    killed_and_ended(rig, step, when, "resume", "--force")


def killed_on_its_way_back(rig: SwitchRig, step: SwitchStep, when: str) -> None:
    (home, twin), term = rig.sides(), rig.home()[1]
    before = rig.level()
    rig.killed(SwitchStep.COMMIT, "before", "run", TOPIC, "--to", twin.name, "--yes")
    rig.killed(f"undo {step}", when, "rollback")
    said = rig.switch("resume")
    assert (said.code, said.last.startswith("turned back: ")) == (1, True), said.text
    rig.settled(home.name, term)
    fill(home, TOPIC, 1)
    assert rig.level() == [before[0] + 1, *before[1:]]
    rig.same("read_uncommitted")
