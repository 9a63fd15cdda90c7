"""Java is found where it fits, and its lack is one clear sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.lab.jars import find_java


def fake_java(folder: Path, version: str) -> Path:
    """A java that only says its version, under folder/bin."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    binary.chmod(0o755)
    return binary


def test_an_old_java_home_does_not_hide_a_good_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    good = fake_java(tmp_path / "good", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{good.parent}{os.pathsep}{os.environ['PATH']}")
    assert find_java() == str(good)


@pytest.mark.parametrize(("version", "seen"), [("1.8.0_402", "is Java 8"), ("16", "is Java 16"), ("?", "does not run")])
def test_a_java_too_old_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, seen: str
) -> None:
    binary = fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with raises(ConfigError, "lab.no-java", version=17, found=f"{binary} {seen}") as caught:
        find_java()
    assert seen in caught.value.message
    assert "JAVA_HOME" in caught.value.hint


def test_no_java_at_all_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises(ConfigError, "lab.no-java", found="there is no java on PATH"):
        find_java()
