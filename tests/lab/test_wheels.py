"""Packages beside the product's own: what pip cannot have is said, and nothing is left of it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from testkit.errors import raises
from testkit.jars import fetch_python_packages
from twinshore.lab.processes import LabError


def test_what_cannot_be_had_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINSHORE_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with raises(LabError, "", packages=("nothing-of-this-name==1.0",)):
        fetch_python_packages("nothing-of-this-name==1.0")
    assert list((tmp_path / "wheels").iterdir()) == []


def test_what_was_fetched_once_is_asked_of_nobody_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINSHORE_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wheel = _wheel(tmp_path)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    folder = fetch_python_packages("nothing-but-this==1.0")
    assert (folder / "nothing_but_this.py").read_text() == "SAID = 7\n"
    wheel.unlink()
    assert fetch_python_packages("nothing-but-this==1.0") == folder


def _wheel(folder: Path) -> Path:
    made = folder / "links" / "nothing_but_this-1.0-py3-none-any.whl"
    made.parent.mkdir()
    info = "nothing_but_this-1.0.dist-info"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("nothing_but_this.py", "SAID = 7\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: nothing-but-this\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return made
