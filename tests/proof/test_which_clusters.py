"""A task compares the clusters and topics that the look saw, and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proof.small_broker import TOPIC, SmallBroker
from tests.proof.test_proving import Rig, log, rig
from twinshore.config.settings import load_settings
from twinshore.proof.core.model import CompareMode
from twinshore.proof.core.planning import ProofOptions
from twinshore.proof.core.report import describe_report, exit_code
from twinshore.proof.jobs import run_bundle_in_process
from twinshore.proof.rounds import ProofRounds


def moved(broker: SmallBroker) -> str:
    broker.name = "elsewhere"
    return "its addresses lead to another cluster now: elsewhere"


def made_again(broker: SmallBroker) -> str:
    broker.topic_id = bytes(15) + b"\x09"
    return f"topic {TOPIC} on west was deleted and created again during the proof"


def changed(two: Rig, change: Callable[[SmallBroker], str], said: list[str]) -> Callable[[str, str], list[str]]:
    """What runs tasks, and changes the target between the look and the first of them."""

    def run(bundle: str, name: str) -> list[str]:
        if not said:
            said.append(change(two.target))
        return run_bundle_in_process(bundle, name)

    return run


@pytest.mark.claim(
    "groups",
    "proof-which-clusters",
    "a task of a proof that meets another cluster or topic than was looked at compares nothing, and says so",
)
@pytest.mark.parametrize("change", [moved, made_again])
def test_a_proof_compares_no_other_cluster_and_no_other_topic(
    tmp_path: Path, change: Callable[[SmallBroker], str]
) -> None:
    with rig(tmp_path, log(), log()) as two:
        said: list[str] = []
        loaded, run = load_settings(two.settings, {}), changed(two, change, said)
        proving = ProofRounds(
            loaded, two.store, run, options=ProofOptions(), tasks=1, mode=CompareMode.EXACT, settle_s=0.0
        )
        report = proving.round(loaded.links, [TOPIC])
        assert exit_code(report) == 2 and said[0] in "\n".join(describe_report(report)), "\n".join(
            describe_report(report)
        )
        assert [row.to_offset for row in two.store.proofs.of()] in ([], [0])


def test_a_cluster_is_not_compared_with_itself(tmp_path: Path) -> None:
    with rig(tmp_path, log(), log()) as two:
        two.target.name = "east"
        report = two.round(CompareMode.CONTENT)
        assert exit_code(report) == 2
        assert "(east)" in "\n".join(describe_report(report))
