"""The habits that no linter knows: sizes, names, words, and what must not stand in a file."""

from __future__ import annotations

import ast
import io
import re
import shutil
import subprocess
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from testkit.telling import (
    FIGURES,
    ODD_WORDS,
    FormFigure,
    SourceTree,
    docstrings,
    per_thousand,
    read_file,
    read_tree,
    repeated_classes,
)
from tests.each_file import each_of
from twinshore.config.incident_policy import IncidentKind

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for room in ("src", "tests", "bench", "scripts") for path in (ROOT / room).rglob("*.py"))
OPERATIONS = sorted((ROOT / "src" / "twinshore").glob("*/operations/[!_]*.py"))
ROOMS = sorted(path.parent for path in (ROOT / "src" / "twinshore").glob("*/__init__.py"))
TEXT_KINDS = {"", ".py", ".md", ".toml", ".sh", ".ini", ".mako", ".xml", ".lock", ".yaml", ".json", ".txt", ".cfg"}
MADE_BY_MAKE = {
    *(".git", ".venv", ".cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".import_linter_cache"),
    *("__pycache__", "twinshore.egg-info"),
}

MODULE_LINES_MAX = 900
FUNCTION_LINES_MAX = 60
VERB_LINES_MAX = 30  # without its options and its docstring
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
# A test that is skipped, or that expects to fail, cannot fail.
WAYS_TO_SKIP = {"skip", "skipif", "xfail", "importorskip", "skipTest"}
# What may be an assertion of a constant: only such files are read as code, which takes longer than to look at the text.
CONSTANT = re.compile(r"""\bassert[\s(]*(?:True\b|False\b|None\b|\.\.\.|\d|[bBrRuU]{0,2}["'])""")
ODD_WORDS_MAX = 1.0  # of a thousand
# Bounds of form that `make show-nouns` alone tries.
SHOWN_ONLY = {"code-lines", "log-functions", "sentences"}
PUT_OFF = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")

# Where somebody's files happen to be. The look-behind lets addresses and longer paths through.
MACHINE_PATH = re.compile(r"(?<![\w.:/$})-])/(home|Users|root|work|workspace|builds)/\w|(?<![\w.:/$})-])/tmp/\w")
REGISTRY = re.compile(
    r"pypi\.org|files\.pythonhosted|repo1?\.maven|maven\.org|registry\.npmjs|--(extra-)?index-url ", re.IGNORECASE
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def own_files() -> list[Path]:
    """Every text file that git would keep; in an unpacked archive, every one that make did not make."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    git = shutil.which("git")
    listed = subprocess.run(command, capture_output=True, text=True, check=False) if git else None
    if listed and listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not MADE_BY_MAKE.intersection(path.relative_to(ROOT).parts)]
    return sorted(path for path in paths if path.is_file() and path.suffix in TEXT_KINDS)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@each_of(SOURCES)
def test_a_module_can_be_read_at_one_sitting(path: Path) -> None:
    text = path.read_text()
    long = [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in functions(ast.parse(text))
        if node.end_lineno is not None and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert not long, f"functions are below {FUNCTION_LINES_MAX} lines here"
    assert len(text.splitlines()) <= MODULE_LINES_MAX


# What comes before the clock's room, and sets up the stages of tests, reads the machine's.
CLOCKS_OF_THEIR_OWN = ("kafka/", "lab/")


@each_of(sorted((ROOT / "src" / "twinshore").rglob("*.py")))
def test_what_time_it_is_is_asked_in_one_place(path: Path) -> None:
    if not str(path.relative_to(ROOT / "src" / "twinshore")).startswith(CLOCKS_OF_THEIR_OWN):
        found = re.findall(r"\btime\.time(?:_ns)?\(", path.read_text())
        assert not found, "kafka/clock.py says it: wall_ms"


@each_of(sorted((ROOT / "src" / "twinshore" / "cli").glob("*.py")))
def test_a_verb_opens_asks_and_shows(path: Path) -> None:
    """What is read, decided and written is an operation of its room: the command line passes the store on."""
    tree = ast.parse(path.read_text())
    for node in functions(tree):
        body = node.body[1:] if ast.get_docstring(node) else node.body
        lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
        assert lines <= VERB_LINES_MAX, f"{node.name} has {lines} lines"
    asked = [
        f"line {node.lineno}: store.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "store"
    ]
    assert asked == []


def kinds_in_quotes(source: str) -> list[str]:
    """Kinds of incidents that stand in the code as texts, but for values of another enum that are called the same."""
    # One word alone, such as "refused", says many things.
    kinds = {kind for kind in IncidentKind if " " in kind}
    if not any(kind.split()[0] in source for kind in kinds):
        return []
    tree = ast.parse(source)
    classes = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
    given = [part.value for one in classes for part in one.body if isinstance(part, ast.Assign)]
    values = {id(text) for value in given for text in ast.walk(value)}
    texts = [one for one in ast.walk(tree) if isinstance(one, ast.Constant) and id(one) not in values]
    return [one.value for one in texts if one.value in kinds]


def test_a_kind_in_quotes_is_seen() -> None:
    assert kinds_in_quotes('Halt("retention gap", 0)') == ["retention gap"]
    assert kinds_in_quotes('class Trace(StrEnum):\n    FOREIGN = "foreign write"') == []


@each_of(sorted((ROOT / "src" / "twinshore").rglob("*.py")))
def test_a_kind_of_incident_is_the_enum_and_no_text(path: Path) -> None:
    assert kinds_in_quotes(path.read_text()) == [] or path.match("config/incident_policy.py")


@each_of(sorted((ROOT / "src" / "twinshore").rglob("*.py")))
def test_what_says_that_it_is_pure_stands_under_a_contract(path: Path) -> None:
    text = path.read_text()
    if "Pure" in text and re.search(r"\bPure\b", ast.get_docstring(ast.parse(text)) or ""):
        assert is_held_pure(path)


def is_held_pure(path: Path) -> bool:
    """Whether a contract keeps the module from what is not pure."""
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    held = [one["source_modules"] for one in contracts if "time" in one.get("forbidden_modules", ())]
    patterns = [re.escape(module).replace(r"\*\*", ".+") for modules in held for module in modules]
    return any(re.fullmatch(rf"{pattern}(?:\..+)?", name) for pattern in patterns)


@each_of(sorted((ROOT / "src" / "twinshore").rglob("*.py")))
def test_what_is_pure_takes_values_and_no_store(path: Path) -> None:
    """`state/core/values.py` and those beside it are values; the package has what opens databases."""
    if re.search(r"^from twinshore\.state\.(?:store|engine|opening) import", path.read_text(), re.M):
        assert not is_held_pure(path)


def names_in(folder: Path) -> set[str]:
    """What a docstring of the package may speak of: its modules and rooms, and all that is called by name in them."""
    found = {folder.parent.name}
    for path in folder.rglob("*.py"):
        found |= {path.stem, path.parent.name}
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
    return found


@each_of(sorted((ROOT / "src" / "twinshore").rglob("__init__.py")))
def test_a_package_speaks_of_what_is_in_it(path: Path) -> None:
    said = re.findall(r"`([a-z_.]+)`", ast.get_docstring(ast.parse(path.read_text())) or "")
    beside = {one.stem for one in path.parent.parent.iterdir()} | {room.name for room in ROOMS}
    strange = {name.rpartition(".")[2] for name in said} - beside
    assert not strange or strange <= names_in(path.parent)


@each_of(SOURCES)
def test_tests_and_benches_know_nothing_of_each_other_and_the_product_of_neither(path: Path) -> None:
    room = path.relative_to(ROOT).parts[:2]
    forbidden = {"src": ("bench", "tests", "scripts"), "tests": ("bench",), "bench": ("tests",)}.get(room[0], ())
    forbidden += {"kit": ("bench.measure", "bench.show"), "measure": ("bench.show",)}.get(room[1], ())
    text = path.read_text()
    if not any(one.partition(".")[0] in text for one in forbidden):
        return
    for node in ast.walk(ast.parse(text)):
        named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        named += [one.name for one in node.names] if isinstance(node, ast.Import) else []
        wrong = [module for module in named for one in forbidden if f"{module}.".startswith(f"{one}.")]
        assert wrong == [], "imported here"


@each_of(OPERATIONS)
def test_an_operation_is_tested_without_the_command_line(path: Path) -> None:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    imports = (f"from {'.'.join(parts)} import", f"from {'.'.join(parts[:-1])} import {parts[-1]}\n")
    texts = [test.read_text() for test in (ROOT / "tests" / parts[1]).rglob("test_*.py")]
    assert [text for text in texts if not re.search(r"twinshore\.cli\b", text) and any(one in text for one in imports)]


@each_of(SOURCES)
def test_a_module_is_named_after_what_it_holds(path: Path) -> None:
    assert path.stem not in EMPTY_NAMES
    assert path.parent.name not in EMPTY_NAMES


@each_of(SOURCES)
def test_nothing_is_put_off(path: Path) -> None:
    text, hollow = path.read_text(), "NotImplemented" + "Error"
    if PUT_OFF.search(text):
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        assert not [token.string for token in tokens if token.type == tokenize.COMMENT and PUT_OFF.search(token.string)]
    if hollow in text:
        names = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
        named = [node.lineno for node in names if node.id == hollow]
        assert named == [], f"{hollow} stands where code should"


@each_of([path for path in SOURCES if "tests" in path.parts])
def test_each_test_can_fail(path: Path) -> None:
    text = path.read_text()
    if not CONSTANT.search(text) and not any(f".{way}" in text for way in WAYS_TO_SKIP):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            assert node.attr not in WAYS_TO_SKIP, f"line {node.lineno}"
        if isinstance(node, ast.Assert):
            assert not isinstance(node.test, ast.Constant), f"line {node.lineno} asserts a constant"


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_a_room_says_what_it_is(room: Path) -> None:
    docstring = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    assert len(docstring) > 80, "one paragraph: its nouns, what enters, what leaves, what it does not know"
    assert f"`{room.name}`" in (ROOT / "ARCHITECTURE.md").read_text(), "ARCHITECTURE.md does not name the room"
    assert list((ROOT / "tests" / room.name).glob("test_*.py")), "a room without a test"


@each_of(own_files())
def test_no_file_knows_this_machine(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        assert not MACHINE_PATH.search(line), f"line {number} names a path of somebody's machine"
        assert f"{ROOT}/" not in line or len(ROOT.parts) < 3, f"line {number} names this very checkout"
        assert not REGISTRY.search(line), f"line {number} names a package registry"


def test_the_lock_pins_and_hashes_everything_and_names_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    entries = re.split(r"\n(?=\w)", lock.strip())
    for entry in entries:
        assert re.match(r"[a-z0-9.-]+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", entry), entry.splitlines()[0]
    pinned = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", lock, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        wanted = Requirement(text)
        version = pinned.get(re.sub(r"[-_.]+", "-", wanted.name).lower())
        assert version, f"{wanted.name} is not in the lock; run make lock"
        assert wanted.specifier.contains(version), f"the lock has {wanted.name} {version}, pyproject wants {text}"


def test_continuous_integration_has_no_steps_of_its_own() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, ".ci/run is not executable"
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert lines == ["set -eu", 'cd "$(dirname "$0")/.."', "make lint", "make test"]


def test_the_change_log_has_a_place_for_the_next_change() -> None:
    assert "\n## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_watch_on_paths_and_registries_sees_them() -> None:
    slash, dot = "/", "."
    for text in (f"cd {slash}home/anna/x", f'"{slash}tmp/log"', f"see {slash}work/shared"):
        assert MACHINE_PATH.search(text), text
    for text in ("https://host/home/page", "/etc/twinshore/ca.pem", "$TMPDIR/tmp/x", "lab/work/queue"):
        assert not MACHINE_PATH.search(text), text
    assert REGISTRY.search(f"pypi{dot}org")


def test_a_file_that_falls_short_is_named() -> None:
    @each_of([ROOT / "README.md", ROOT / "LICENSE"])
    def check(path: Path) -> None:
        assert path.name != "LICENSE", "it is the licence"

    with pytest.raises(AssertionError, match=r"\ALICENSE: it is the licence"):
        check()


@pytest.mark.parametrize("package", ROOMS, ids=lambda package: package.name)
def test_docstrings_use_plain_words(package: Path) -> None:
    files = [read_file(path) for path in package.rglob("*.py")]
    assert per_thousand(ODD_WORDS, docstrings(files)) <= ODD_WORDS_MAX


def test_a_class_name_is_borne_once() -> None:
    assert repeated_classes(map(read_file, (ROOT / "src" / "twinshore").rglob("*.py"))) == []


@pytest.fixture(scope="module")
def tree() -> SourceTree:
    return read_tree(ROOT)


@pytest.mark.parametrize("figure", [one for one in FIGURES if one.key not in SHOWN_ONLY], ids=lambda one: one.key)
def test_the_form_of_code_and_pages_keeps_its_bounds(figure: FormFigure, tree: SourceTree) -> None:
    assert figure.holds(figure.measure(tree)), f"{figure.says()}; it is {figure.measure(tree):,.2f}"


def test_topics_are_deleted_in_one_place() -> None:
    """`lab` deletes topics of clusters on this machine by a client of its own."""
    calls = [
        path for path in SOURCES if path.is_relative_to(ROOT / "src") and ".admin.delete_topic(" in path.read_text()
    ]
    assert [name_of(path) for path in calls] == ["src/twinshore/replication/sync/deletion_guard.py"]
