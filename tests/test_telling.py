"""The figures of form, on texts of which each is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.telling import FIGURES, FormFigure, SourceFile, SourceTree

MODULE = '''"""The module. It reads its file: whoever asks."""

import os

# A comment.
Log = Callable[[str], None]


class Reader:
    """One."""


class _Own:
    pass
'''
FACE = '''"""The package."""


def helper() -> None:
    pass
'''
TEST = """def test_reading() -> None:
    assert said == "the file cannot be read"
    assert said == "not read"
    with pytest.raises(OSError, match="the file cannot be read"):
        read()
"""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("files", 5),
        ("median-lines", 14),
        ("code-lines", 12),
        ("faces", 1),
        ("long-modules", 1),
        ("short-modules", 3),
        ("class-names", 1),
        ("file-names", 1),
        ("odd-docstrings", 100),
        ("odd-pages", 250),
        ("it", 200),
        ("log-functions", 2),
        ("sentences", 2),
        ("architecture-kb", 3),
        ("contributing-kb", 2),
        ("changelog-kb", 1),
        ("page-words", 4),
    ],
)
def test_a_figure_counts_what_it_names(key: str, value: float) -> None:
    modules = [SourceFile(Path(f"{folder}/reader.py"), MODULE) for folder in "ab"]
    files = (
        *modules,
        SourceFile(Path("a/__init__.py"), FACE),
        SourceFile(Path("a/model.py"), "\n" * 901),
        SourceFile(Path("b/model.py"), ""),
    )
    sizes = {"ARCHITECTURE.md": 3.0, "CONTRIBUTING.md": 2.0, "CHANGELOG.md": 1.0}
    tree = SourceTree(
        files, (SourceFile(Path("test_reader.py"), TEST),), "A word of whom\n```sh\nls whoever\n```\n", sizes
    )
    (figure,) = [one for one in FIGURES if one.key == key]
    assert figure.measure(tree) == pytest.approx(value)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.key)
def test_a_figure_holds_at_its_bound_and_not_beyond(figure: FormFigure) -> None:
    beyond = figure.bound - 1 if figure.at_least else figure.bound + 1
    assert (figure.holds(figure.bound), figure.holds(beyond)) == (True, False)
