"""Seeds of the simulated mirror. `make simulate SEED=n` replays one that fails, step by step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.__main__ import attempt
from tests.simulation.mutants import MUTANTS
from tests.simulation.world import run_seed

ROOT = Path(__file__).resolve().parents[2]


def simulate(*arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_whatever_goes_wrong_twins_stay_exact_and_all_arrives(first: int) -> None:
    failed = [error for seed in range(first, first + 10) if (error := attempt(seed)[1])]
    assert not failed, "\n".join(failed)


def test_a_seed_is_one_run_whatever_the_process() -> None:
    steps = run_seed(17).schedule.steps
    found = simulate("--seed", "17")
    assert found.stdout.rstrip().endswith(f"seed 17 passes in {steps} steps"), found.stdout[-500:] + found.stderr


@pytest.mark.parametrize("name", sorted(name for name, mutant in MUTANTS.items() if mutant.cheap))
def test_a_mistake_is_caught(name: str) -> None:
    found = simulate("--mutant", name)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "caught by seed" in found.stdout


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(name for name, mutant in MUTANTS.items() if not mutant.cheap))
def test_a_rare_mistake_is_caught(name: str) -> None:
    found = simulate("--mutant", name, timeout_s=600)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_ten_thousand_seeds_pass() -> None:
    found = simulate("--seeds", "10000", "--processes", "2", timeout_s=2400)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr
    assert "10000 seeds, 0 failed" in found.stdout
