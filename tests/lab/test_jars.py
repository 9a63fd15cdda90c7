"""Jars come once and whole, also to two who ask at the same time; here from a folder, so that no network is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from testkit.errors import raises
from testkit.jars import fetch_mirrormaker_classpath
from twinshore.lab.jars import IvyProgress, MavenModule, cache_folder, fetch_jars, fetch_kafka_classpath
from twinshore.lab.processes import LabError

_MODULE = MavenModule("org.example", "tide", "1.0")
_SETTINGS = """
<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers>
    <filesystem name="here" m2compatible="true">
      <ivy pattern="{0}/[organisation]/[module]/[revision]/[module]-[revision].pom"/>
      <artifact pattern="{0}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
    </filesystem>
  </resolvers>
</ivysettings>
"""
_POM = """
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId><artifactId>tide</artifactId><version>1.0</version>
</project>
"""
_ASK = """
from twinshore.lab.jars import MavenModule, IvyProgress, fetch_jars
print(fetch_jars("the tide", MavenModule("org.example", "tide", "1.0")))
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a repository that holds one module."""
    home = tmp_path / "repository" / "org" / "example" / "tide" / "1.0"
    home.mkdir(parents=True)
    (home / "tide-1.0.pom").write_text(_POM)
    with zipfile.ZipFile(home / "tide-1.0.jar", "w") as jar:
        jar.writestr("high", "water")
    settings = tmp_path / "settings.xml"
    settings.write_text(_SETTINGS.format(tmp_path / "repository"))
    monkeypatch.setenv("TWINSHORE_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("TWINSHORE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_two_who_ask_at_once_get_the_same_whole_folder_fetched_once(cache: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    askers = [
        subprocess.Popen(
            [sys.executable, "-c", _ASK],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(2)
    ]
    said = [asker.communicate(timeout=120) for asker in askers]
    assert [output for output, _ in said] == [f"{cache}/jars/tide-1.0\n"] * 2
    assert [jar.name for jar in (cache / "jars" / "tide-1.0").iterdir()] == ["tide-1.0.jar"]
    assert sum(errors.count("fetching the tide (once") for _, errors in said) == 1


def test_what_does_not_exist_is_named_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    with raises(LabError, "lab.cannot-fetch", what="the ebb") as caught:
        fetch_jars("the ebb", _MODULE._replace(version="2.0"))
    assert "TWINSHORE_IVY_SETTINGS" in caught.value.hint
    assert list((cache / "jars").iterdir()) == []
    assert capfd.readouterr().err.count("trying again") == 2


def test_a_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWINSHORE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "twinshore"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "twinshore"
    monkeypatch.setenv("TWINSHORE_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_class_paths_hold_brokers_and_mirrormaker_with_one_logger() -> None:
    broker, mirror = fetch_kafka_classpath().split(os.pathsep), fetch_mirrormaker_classpath().split(os.pathsep)
    assert any(jar.endswith("kafka_2.13-4.3.1.jar") for jar in broker)
    assert {"connect-mirror-4.3.1.jar", "connect-runtime-4.3.1.jar"} <= {Path(jar).name for jar in mirror}
    for jars in (broker, mirror):
        assert all(Path(jar).is_file() for jar in jars)
        names = [Path(jar).name for jar in jars]
        assert len(names) == len(set(names))
        assert [name for name in names if name.startswith(("slf4j-simple", "slf4j-api"))] == [
            "slf4j-api-1.7.36.jar",
            "slf4j-simple-1.7.36.jar",
        ]


def test_progress_has_an_end_in_sight() -> None:
    """In Ivy's own words: first what belongs together, then file by file."""
    seen = IvyProgress().after(":: resolving dependencies ::").after("\tfound org.example#tide;1.0 in here")
    seen = seen.after("\tfound org.example#moon;2.0 in here")
    assert str(seen).endswith("2 modules so far")
    seen = seen.after("downloading tide-1.0.jar ...").after("\t[SUCCESSFUL ] org.example#tide;1.0!tide.jar (3ms)")
    assert str(seen) == "1 of 2 files"
