"""One test for a check of many files: a test for each file took longer to set up than to check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
Check = Callable[[Path], None]


def each_of(paths: Iterable[Path]) -> Callable[[Check], Callable[[], None]]:
    """Makes a check of a path a test of all of these, which names each that falls short."""
    every = tuple(paths)

    def made(check: Check) -> Callable[[], None]:
        def test() -> None:
            assert every, "there is nothing to check"
            fell = []
            for path in every:
                try:
                    check(path)
                except AssertionError as error:
                    fell.append(f"{path.relative_to(ROOT)}: {error}")
            assert not fell, "\n".join(fell)

        test.__doc__ = check.__doc__
        return test

    return made
