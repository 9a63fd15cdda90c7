"""What `pip install` gives: the whole product, and the small client side without what only the whole needs."""

from __future__ import annotations

import importlib.metadata as metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from twinshore import __version__

ROOT = Path(__file__).resolve().parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
SOURCES = ROOT / "src"
# The dependencies are most of it.
CLIENT_MB_MAX = 40
NOT_IN_THE_CLIENT = (
    "pyspark",
    "py4j",
    "numba",
    "llvmlite",
    "numpy",
    "pyarrow",
    "sqlalchemy",
    "alembic",
    "typer",
)
# Compiled loops and their callers. The client needs none of them; a package ships whole.
WITH_NUMPY = {"twinshore.kafka.log_reader", "twinshore.kafka.protocol.batch_join", "twinshore.kafka.protocol.compiled"}
IMPORT_ALL = """
import importlib, pkgutil, sys
import twinshore
assert {place!r} in twinshore.__file__, twinshore.__file__
left_out = {left_out!r}
for found in pkgutil.walk_packages(twinshore.__path__, "twinshore."):
    if found.name not in left_out and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
unwanted = set({unwanted!r}) & set(sys.modules)
assert not unwanted, unwanted
"""


def project(place: Path) -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((place / "pyproject.toml").read_text())["project"]
    return found


def checkout(folder: Path) -> Path:
    """A copy of what is built: a build leaves its traces beside it."""
    copy = folder / "checkout"
    if not copy.exists():
        copy.mkdir()
        shutil.copytree(SOURCES, copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        shutil.copytree(ROOT / "client", copy / "client", ignore=shutil.ignore_patterns("build", "*.egg-info"))
        for name in ("docs", "deploy"):
            shutil.copytree(ROOT / name, copy / name)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
    return copy


def wheel(place: Path, folder: Path) -> Path:
    """The wheel of a copy."""
    copy = checkout(folder)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    to = folder / f"wheel-{place.name or 'whole'}"
    done = subprocess.run([*command, "-w", str(to), str(copy / place)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = to.glob("*.whl")
    return made


def bytes_in(site: Path) -> int:
    """What was installed, without what Python has compiled of it."""
    return sum(path.stat().st_size for path in site.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def needed(names: list[str]) -> set[str]:
    """These distributions and all that they need."""
    found: set[str] = set()
    waiting = [re.split(r"[<>=!~;\\[ ]", name)[0] for name in names]
    while waiting:
        name = waiting.pop()
        if name.lower() in found:
            continue
        found.add(name.lower())
        required = metadata.requires(name) or ()
        waiting += [re.split(r"[<>=!~;\\[( ]", one)[0] for one in required if "extra ==" not in one]
    return found


def test_the_whole_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel(Path(), tmp_path)) as made:
        inside = {name for name in made.namelist() if name.startswith("twinshore/")}
    ours = (path for path in (SOURCES / "twinshore").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert {path.relative_to(SOURCES).as_posix() for path in ours} == inside


def test_the_whole_wheel_has_each_page_and_rule_that_a_sentence_names(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel(Path(), tmp_path)) as made:
        inside = {name.partition("/share/twinshore/")[2] for name in made.namelist()}
    source = "".join(path.read_text() for path in (SOURCES / "twinshore").rglob("*") if path.suffix in {".py", ".json"})
    named = set(re.findall(r"\b(?:docs|deploy)/[\w/.-]*\w\.\w+", source))
    assert "docs/settings.md" in named
    assert named <= inside


def build_all(folder: Path) -> list[Path]:
    """The wheels and the sdist, by the very commands of `make wheel`."""
    (recipe,) = re.findall(r"^wheel:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    copy = checkout(folder)
    for command in re.findall(r"\$\(BIN\)/(python -m build .*)", recipe):
        done = subprocess.run(
            [sys.executable, *command.split()[1:]], cwd=copy, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stderr
    return sorted((copy / "dist").iterdir())


def test_make_wheel_builds_all_of_the_version_that_the_package_says(tmp_path: Path) -> None:
    """What is in the sdist builds the same wheel."""
    made = [path.name for path in build_all(tmp_path)]
    copy = tmp_path / "checkout"
    kinds = ("-py3-none-any.whl", ".tar.gz")
    assert made == [f"twinshore-{__version__}{kind}" for kind in kinds] + [f"twinshore_client-{__version__}{kinds[0]}"]
    said = zipfile.ZipFile(copy / "dist" / made[0]).read(f"twinshore-{__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in said
    assert (
        "console_scripts"
        in zipfile.ZipFile(copy / "dist" / made[0]).read(f"twinshore-{__version__}.dist-info/entry_points.txt").decode()
    )


def test_the_changelog_goes_by_version_with_what_is_not_released_on_top() -> None:
    heads = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ · \d{4}-\d{2}-\d{2}", head) for head in heads[1:])


def test_the_client_is_small_and_runs_without_what_only_the_whole_needs(tmp_path: Path) -> None:
    """In an environment that has its own five dependencies, as locked here, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    (site,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel(Path("client"), tmp_path)) as made:
        made.extractall(site)
    dependencies = project(ROOT / "client")["dependencies"]
    assert isinstance(dependencies, list)
    for name in needed(dependencies):
        for file in metadata.files(name) or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), site / file)
    size_mb = bytes_in(site) / 1e6
    print(f"the client side takes {size_mb:.1f} MB")
    assert size_mb < CLIENT_MB_MAX
    looked = IMPORT_ALL.format(place=str(site), left_out=WITH_NUMPY, unwanted=NOT_IN_THE_CLIENT)
    python = tmp_path / "bare" / "bin" / "python"
    done = subprocess.run([str(python), "-I", "-c", looked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_both_are_of_one_version_and_ask_for_the_same() -> None:
    whole, client = project(ROOT), project(ROOT / "client")
    for name in ("license", "requires-python"):
        assert whole[name] == client[name]
    assert client["version"] == __version__
    assert whole["dynamic"] == ["version"], "the package says its version itself, and nothing says it again"
    assert set(client["dependencies"]) <= set(whole["dependencies"])  # type: ignore[call-overload]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("place", "size_mb_max"), [(".", 2_000), ("client", CLIENT_MB_MAX)])
def test_pip_installs_it_into_a_bare_environment(tmp_path: Path, place: str, size_mb_max: int) -> None:
    """With packages as an index has them today, not as they are locked here."""
    wheel(Path(place), tmp_path)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", str(bare)], check=True)
    (site,) = (bare / "lib").glob("python*/site-packages")
    before = bytes_in(site)
    pip = [str(bare / "bin" / "python"), "-I", "-m", "pip"]
    done = subprocess.run(
        [*pip, "install", "-q", str(tmp_path / "checkout" / place)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    subprocess.run([*pip, "check"], check=True)
    size_mb = (bytes_in(site) - before) / 1e6
    print(f"{project(ROOT / place)['name']} takes {size_mb:.0f} MB")
    assert size_mb < size_mb_max
    whole = place == "."
    left_out, unwanted = (set(), ()) if whole else (WITH_NUMPY, NOT_IN_THE_CLIENT)
    looked = IMPORT_ALL.format(place=str(site), left_out=left_out, unwanted=unwanted)
    done = subprocess.run([*pip[:2], "-c", looked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if whole:
        said = subprocess.run([str(bare / "bin" / "twinshore"), "--help"], capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr
        assert "mirror" in said.stdout
