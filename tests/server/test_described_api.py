"""The API is as its description says: schemathesis makes right and wrong requests of it, for each role."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testkit.console import first_admin, person, web_process
from twinshore.server.core.catalogue import Role
from twinshore.state.store import open_store

# A description cannot say how long a whole request may be.
CHECKS = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 413]
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 403, 404, 409, 413]
"""


def try_requests(folder: Path, role: Role, *options: str) -> None:
    file = folder / "schemathesis.toml"
    file.write_text(CHECKS, encoding="utf-8")
    with open_store(f"sqlite:///{folder / 'store.db'}") as store, web_process(store) as base:
        token = person(first_admin(store, base), "bob", role).token
        words = [
            "--config-file",
            str(file),
            "run",
            f"{base}/api/v1/openapi.json",
            "--no-color",
            "--no-shrink",
            "--exclude-method=DELETE",  # it ends the token of all these requests
            *options,
        ]
        command = [sys.executable, "-m", "schemathesis.cli", *words, "-H", f"Authorization: Bearer {token}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    complaints = [line[:500] for line in done.stdout.splitlines() if line.strip()]
    assert "generated" in done.stdout and not done.returncode, "\n".join([*complaints, done.stderr])


@pytest.mark.claim("platform", "described", "the API answers as its description says, for every role")
@pytest.mark.parametrize("role", Role)
def test_each_route_answers_as_described(tmp_path: Path, role: Role) -> None:
    try_requests(tmp_path, role, "--phases=fuzzing", "--max-examples=1")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("role", Role)
def test_each_route_answers_as_described_for_many_requests(tmp_path: Path, role: Role) -> None:
    try_requests(tmp_path, role, "--phases=coverage,fuzzing", "--max-examples=5", "--continue-on-failure")
