"""Files that hold records are readable by their owner alone, whatever the umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from twinshore.client.core.spool_format import SpoolRecord
from twinshore.client.discovery.config_service import save_last_push
from twinshore.client.spool import Spool
from twinshore.switch.rescue_steps import export


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.claim("client", "private-files", "the owner alone reads rescued records, spools, kept pushes")
def test_rescued_records_spools_and_pushes_are_private(tmp_path: Path) -> None:
    export(["a line"], tmp_path / "rescued" / "orders.jsonl")
    spool = Spool(tmp_path / "spool")
    kept = spool.keep([SpoolRecord(0, "orders", b"value", None, -1, 0, (), 1)])
    assert kept is not None
    spool.commit(kept)
    spool.close()
    (tmp_path / "push.part").touch(0o666)
    save_last_push(tmp_path / "push", "{}")
    found = {str(one.relative_to(tmp_path)): one.stat().st_mode & 0o777 for one in tmp_path.rglob("*")}
    assert {"rescued", "spool", "push"} <= found.keys() and len(found) > 5
    assert {name: mode for name, mode in found.items() if mode & 0o077} == {}
