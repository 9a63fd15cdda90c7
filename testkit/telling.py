"""How the code and its pages are written, in figures: sizes, names that stand twice, uncommon words.

It judges form alone: a page may keep all bounds and still be hard to read.
"""

from __future__ import annotations

import ast
import re
import shutil
import statistics
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

ODD_WORDS: Final = re.compile(
    r"\b(nobody|whoever|somebody|anew|whatever|thereby|wherever|meanwhile|whence|hereby|lest|nought|oneself|of whom|"
    r"of which|to whom|by whom|is let|are let|be let|to and fro)\b",
    re.IGNORECASE,
)
_IT = re.compile(r"\b(it|its)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[a-z]+ [a-z]+ [a-z]+ [a-z]+ [a-z]+", re.IGNORECASE)
_FENCED = re.compile(r"```.*?```", re.DOTALL)
_WORD = re.compile(r"[A-Za-z']+")
MODULE_LINES_MAX: Final = 900
MODULE_LINES_MIN: Final = 60
FACE_LINES_MAX: Final = 80
# Each package has these, so their names say nothing.
_NAMES_OF_EACH: Final = {"__init__.py", "operations.py", "model.py", "core.py"}
_GENERATED: Final = {"settings.md", "cli.md", "metrics.md", "incidents.md", "compatibility.md", "benchmarks.md"}

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFile:
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def is_face(self) -> bool:
        return self.path.name == "__init__.py"


@dataclass(frozen=True, slots=True)
class SourceTree:
    """What is judged: the files of `src`, those of tests and benches, and the written pages."""

    files: tuple[SourceFile, ...]
    tests: tuple[SourceFile, ...]
    pages: str
    kilobytes: dict[str, float]

    @property
    def modules(self) -> list[SourceFile]:
        return [file for file in self.files if not file.is_face]


@dataclass(frozen=True, slots=True)
class FormFigure:
    key: str
    name: str
    measure: Callable[[SourceTree], float]
    bound: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def says(self) -> str:
        return f"{self.name}: at {'least' if self.at_least else 'most'} {self.bound:,.0f}"


def read_tree(root: Path) -> SourceTree:
    """What git has below `root`."""
    pages = [path for path in _tracked(root, "docs/*.md") if path.name not in _GENERATED and path.parent.name == "docs"]
    pages += [root / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    sized = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
    return SourceTree(
        tuple(map(read_file, _tracked(root, "src/twinshore/*.py"))),
        tuple(map(read_file, _tracked(root, "tests/*.py", "bench/*.py"))),
        "\n".join(path.read_text("utf-8") for path in pages),
        {name: (root / name).stat().st_size / 1024 for name in sized},
    )


def _tracked(root: Path, *patterns: str) -> list[Path]:
    command = [shutil.which("git") or "git", "-C", str(root), "ls-files", "-z", *patterns]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := root / name).exists()]


def read_file(path: Path) -> SourceFile:
    return SourceFile(path, path.read_text("utf-8"))


def per_thousand(pattern: re.Pattern[str], text: str) -> float:
    plain = _FENCED.sub(" ", text)
    return 1000 * len(pattern.findall(plain)) / max(1, count_words(text))


def count_words(text: str) -> int:
    return len(_WORD.findall(_FENCED.sub(" ", text)))


def docstrings(files: Iterable[SourceFile]) -> str:
    nodes = (node for file in files for node in ast.walk(file.tree) if isinstance(node, Documented))
    return "\n".join(filter(None, map(ast.get_docstring, nodes)))


def code_lines(file: SourceFile) -> int:
    """Lines that are no blank line, comment or docstring."""
    told: set[int] = set()
    for node in ast.walk(file.tree):
        if isinstance(node, Documented) and ast.get_docstring(node) is not None:
            told.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(map(str.strip, file.text.splitlines()), 1)
    return sum(bool(line) and not line.startswith("#") and number not in told for number, line in lines)


def defines_things(face: SourceFile) -> bool:
    """Whether a package's `__init__` is more than a short paragraph and imports."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return face.lines > FACE_LINES_MAX or any(isinstance(node, kinds) for node in face.tree.body)


def repeated_classes(files: Iterable[SourceFile]) -> list[str]:
    """Public names that several classes bear."""
    nodes = (node for file in files for node in ast.walk(file.tree) if isinstance(node, ast.ClassDef))
    return _repeated(node.name for node in nodes if not node.name.startswith("_"))


def asserted_sentences(file: SourceFile) -> int:
    """How many asserts, and `match=` of errors, hold five English words in a row."""
    return sum(any(map(_is_sentence, ast.walk(judged))) for judged in _judged(file.tree))


def _judged(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield node.test
        elif isinstance(node, ast.keyword) and node.arg == "match":
            yield node.value


def _is_sentence(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_SENTENCE.search(node.value))


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


def _named(files: Iterable[SourceFile]) -> Iterator[str]:
    return (file.path.name for file in files if file.path.name not in _NAMES_OF_EACH)


LOGS_BY_FUNCTION: Final = "Callable[[str], None]"
FIGURES: Final = (
    FormFigure("files", "files in src", lambda tree: len(tree.files), 420),
    FormFigure(
        "median-lines",
        "median lines of a module",
        lambda tree: statistics.median(file.lines for file in tree.modules),
        200,
        True,
    ),
    FormFigure("code-lines", "lines of code in src", lambda tree: sum(map(code_lines, tree.files)), 80_000),
    FormFigure(
        "faces",
        f"packages whose __init__ defines things, or has over {FACE_LINES_MAX} lines",
        lambda tree: sum(file.is_face and defines_things(file) for file in tree.files),
        0,
    ),
    FormFigure(
        "long-modules",
        f"modules over {MODULE_LINES_MAX} lines",
        lambda tree: sum(file.lines > MODULE_LINES_MAX for file in tree.modules),
        0,
    ),
    FormFigure(
        "short-modules",
        f"modules under {MODULE_LINES_MIN} lines",
        lambda tree: sum(file.lines < MODULE_LINES_MIN for file in tree.modules),
        40,
    ),
    FormFigure("class-names", "public names of several classes", lambda tree: len(repeated_classes(tree.files)), 25),
    FormFigure("file-names", "file names of several files", lambda tree: len(_repeated(_named(tree.files))), 40),
    FormFigure(
        "odd-docstrings",
        "odd words in 1,000 of docstrings",
        lambda tree: per_thousand(ODD_WORDS, docstrings(tree.files)),
        1,
    ),
    FormFigure("odd-pages", "odd words in 1,000 of pages", lambda tree: per_thousand(ODD_WORDS, tree.pages), 1),
    FormFigure("it", "'it' in 1,000 words of docstrings", lambda tree: per_thousand(_IT, docstrings(tree.files)), 15),
    FormFigure(
        "log-functions", LOGS_BY_FUNCTION, lambda tree: sum(file.text.count(LOGS_BY_FUNCTION) for file in tree.files), 5
    ),
    FormFigure(
        "sentences", "asserts of an English sentence", lambda tree: sum(map(asserted_sentences, tree.tests)), 250
    ),
    FormFigure("architecture-kb", "kilobytes of ARCHITECTURE.md", lambda tree: tree.kilobytes["ARCHITECTURE.md"], 16),
    FormFigure("contributing-kb", "kilobytes of CONTRIBUTING.md", lambda tree: tree.kilobytes["CONTRIBUTING.md"], 10),
    FormFigure("changelog-kb", "kilobytes of CHANGELOG.md", lambda tree: tree.kilobytes["CHANGELOG.md"], 20),
    FormFigure("page-words", "words of written pages", lambda tree: count_words(tree.pages), 60_000),
)
