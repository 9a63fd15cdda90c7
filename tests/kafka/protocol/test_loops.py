"""Compiled code where its folder is damaged, and where nothing compiles."""

from __future__ import annotations

import errno
import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

from twinshore.kafka.protocol import batch_join as loading
from twinshore.kafka.protocol.batch_join import load_loops

DOUBLED = """
from numba import types
from twinshore.kafka.protocol.compiled import machine_code

@machine_code(types.int64(types.int64))
def doubled(value):
    return 2 * value
"""


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("doubling", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("damage", ["cut", "junk", "folder"])
def test_kept_code_that_is_damaged_is_compiled_again(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "doubling.py"
    path.write_text(DOUBLED)
    assert loaded(path).doubled(4) == 8
    (index,) = (tmp_path / "__pycache__").glob("*.nbi")
    if damage == "folder":
        index.unlink()
        index.mkdir()
    else:
        index.write_bytes(b"" if damage == "cut" else index.read_bytes()[:-3])
    assert loaded(path).doubled(5) == 10


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), EOFError("Ran out of input")])
def test_what_cannot_be_compiled_is_said_and_done_without(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(_: str) -> ModuleType:
        raise error

    monkeypatch.setattr(loading, "import_module", fail)
    with pytest.warns(RuntimeWarning, match="one by one"):
        assert load_loops("twinshore.kafka.protocol.compiled") is None


def test_without_numba_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "without.py").write_text("import numba_that_is_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_loops("without") is None
