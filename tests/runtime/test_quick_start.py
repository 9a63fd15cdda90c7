"""What Spark's JVM is told, and that a JVM starts whatever became of the classes that were kept for it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from twinshore.runtime.spark import LIGHT_JVM_OPTIONS, class_archive, jvm_options, make_class_archive


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where classes would be kept, in a cache of the test's own."""
    monkeypatch.setenv("TWINSHORE_CACHE", str(tmp_path / "cache"))
    found = class_archive()
    assert found is not None
    assert found.is_relative_to((tmp_path / "cache").resolve())
    return found


def java(words: str) -> subprocess.CompletedProcess[str]:
    home = os.environ.get("JAVA_HOME")
    command = [f"{home}/bin/java" if home else "java", *words.split(), "-version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.usefixtures("kept")
def test_a_jvm_is_told_that_it_is_a_light_one_and_what_the_user_says_beside() -> None:
    assert jvm_options() == " ".join(LIGHT_JVM_OPTIONS)
    assert jvm_options("-Da=b") == f"{' '.join(LIGHT_JVM_OPTIONS)} -Da=b"


@pytest.mark.usefixtures("kept")
def test_who_speaks_of_the_jvm_itself_is_alone_to_do_so() -> None:
    assert jvm_options("-XX:+UseG1GC -Da=b") == "-XX:+UseG1GC -Da=b"


def test_kept_classes_are_named_and_those_that_were_tried_in_vain_are_not(kept: Path) -> None:
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert jvm_options() == " ".join(LIGHT_JVM_OPTIONS)
    kept.write_bytes(b"some")
    assert f"-XX:SharedArchiveFile={kept}" in jvm_options().split()


def test_what_was_kept_once_or_tried_in_vain_is_not_made_again(kept: Path) -> None:
    kept.parent.mkdir(parents=True)
    kept.touch()
    make_class_archive()
    assert kept.read_bytes() == b""


def test_another_java_or_spark_has_classes_of_its_own(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert class_archive() not in (None, kept)
    monkeypatch.delenv("SPARK_HOME")
    assert class_archive() == kept
    for name in ("bin/java", "lib/modules"):
        file = tmp_path / "java" / name
        file.parent.mkdir(parents=True)
        file.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    assert class_archive() not in (None, kept)


@pytest.mark.usefixtures("kept")
def test_where_no_java_is_or_a_path_has_a_blank_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINSHORE_CACHE", str(tmp_path / "a cache"))
    assert class_archive() is None
    monkeypatch.setenv("TWINSHORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert class_archive() is None
    assert jvm_options() == " ".join(LIGHT_JVM_OPTIONS)


@pytest.mark.parametrize("what", ["missing", "damaged"])
def test_a_jvm_starts_without_a_word_whatever_became_of_the_file(kept: Path, what: str) -> None:
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"damaged" * 1000)
    told = jvm_options()
    assert "SharedArchiveFile" in told
    if what == "missing":
        kept.unlink()
    quiet, plain = java(told), java("")
    assert quiet.returncode == 0
    assert (quiet.stdout, quiet.stderr.splitlines()[0]) == ("", plain.stderr.splitlines()[0])
    assert "warning" not in quiet.stderr
