"""What `make wheel` builds, installed away from the checkout, looks at two real clusters as the checkout does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import uuid
from pathlib import Path

import pytest

from testkit.clients import forget_links
from tests.test_packaging import build_all, wheel
from twinshore import __version__
from twinshore.lab.cluster import LabCluster
from twinshore.state.store import open_store

SETTINGS = """
[clusters.east]
bootstrap = ["{east}"]
[clusters.west]
bootstrap = ["{west}"]
[links."east->west"]
topics = ["{topic}"]
"""


class Installed:
    """A virtual environment of its own. `borrowed`: its packages are those of the environment that runs the tests, so
    nothing is fetched; else pip fetches what the product asks for, whatever our lock says."""

    def __init__(self, folder: Path, *, borrowed: bool) -> None:
        self.folder, self._borrowed = folder, borrowed
        _run([sys.executable, "-I", "-m", "venv", "--without-pip", str(folder)])
        self.python = folder / "bin" / "python"
        if borrowed:
            # What stands in a folder that a .pth file names is found; .pth files there, such as ours, are not read.
            (site,) = folder.glob("lib/python*/site-packages")
            (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def install(self, made: Path) -> None:
        alone = ["--no-deps", "--no-index", "--no-build-isolation"] if self._borrowed else []
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q", "--force-reinstall", *alone]
        _run([*pip, str(made)])

    def says(self, *words: str, folder: Path) -> str:
        return _run([str(self.folder / "bin" / "twinshore"), *words], folder)


def _run(command: list[str], folder: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=1500
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the sdist, by the very command of `make wheel`."""
    made = build_all(tmp_path_factory.mktemp("built"))
    return {path.suffix: path for path in made if path.name.startswith("twinshore-")}


@pytest.fixture
def settings(east: LabCluster, west: LabCluster, tmp_path: Path) -> Path:
    """A folder with settings for a topic of two partitions."""
    for side in (east, west):
        forget_links(side.cluster)
    topic = f"installed-{uuid.uuid4().hex[:8]}"
    east.create_topic(topic, partitions=2)
    ends = {one.cluster.name: ",".join(one.cluster.bootstrap) for one in (east, west)}
    (tmp_path / "twinshore.toml").write_text(SETTINGS.format(**ends, topic=topic))
    (tmp_path / "topic").write_text(topic)
    open_store(f"sqlite:///{tmp_path / 'twinshore.db'}").close()
    return tmp_path


def assert_looks(installed: Installed, settings: Path) -> None:
    """It is not the checkout that answers; and it knows both clusters, and a link that nobody has run."""
    topic = (settings / "topic").read_text()
    place = _run([str(installed.python), "-c", "import twinshore; print(twinshore.__file__)"], settings)
    assert Path(place.strip()).is_relative_to(installed.folder)
    assert __version__ in installed.says("--version", folder=settings)
    plan = installed.says("mirror", "plan", folder=settings)
    assert f"create twin {topic}: 2 partitions" in plan
    (link,) = json.loads(installed.says("status", "--json", folder=settings))["links"]
    assert (link["link"], link["state"]) == ("east->west", "unknown")
    assert "twinshore mirror run" in installed.says("status", folder=settings)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_wheel_looks_at_real_clusters(settings: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    installed = Installed(settings / "environment", borrowed=True)
    installed.install(wheel(Path(), tmp_path_factory.mktemp("wheel")))
    assert_looks(installed, settings)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [".whl", ".gz"], ids=["wheel", "sdist"])
def test_what_make_wheel_builds_runs_with_packages_as_the_index_has_them_today(
    built: dict[str, Path], settings: Path, kind: str
) -> None:
    installed = Installed(settings / "environment", borrowed=False)
    installed.install(built[kind])
    assert_looks(installed, settings)
