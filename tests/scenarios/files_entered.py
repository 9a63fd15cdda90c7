"""`python -m tests.scenarios.files_entered FILE WAYS MODULE ...` runs a module and writes which files its calls enter.

WAYS is JSON, a list of `Way`. FILE gets a line of JSON for each first entry of a file of `src/twinshore` on a way, and
one for the end of the way. Threads are watched, and processes that are forked. What a module runs when it is imported
does not count.
"""

from __future__ import annotations

import inspect
import itertools
import json
import os
import runpy
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import twinshore

SOURCE = str(Path(twinshore.__file__).resolve().parent) + os.sep
ENDED = ""


class Way(NamedTuple):
    """From the call of function `begin` to the return of function `end`, both by qualified name: what this thread
    calls, or what all threads of the process call."""

    begin: str
    end: str
    all_threads: bool = False


class Walk:
    """One time that a way is gone."""

    def __init__(self, way: int, number: int) -> None:
        self.way, self.number = way, number
        self.seen: set[str] = set()


class EntryHook:
    """A profile hook."""

    def __init__(self, file: Path, ways: Sequence[Way]) -> None:
        self._ways = ways
        self._begins = {way.begin: number for number, way in enumerate(ways)}
        self._ends = {way.end for way in ways}
        self._file = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._names: dict[CodeType, str] = {}
        self._numbers = itertools.count()
        self._own = threading.local()
        self._of_all: Walk | None = None

    def install(self) -> None:
        threading.setprofile(self)
        sys.setprofile(self)

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event not in ("call", "return") or not (name := self._name(frame.f_code)):
            return
        function = frame.f_code.co_qualname
        if event == "call":
            if function in self._begins:
                self._begin(self._begins[function])
            for walk in self._walks():
                if name not in walk.seen:
                    walk.seen.add(name)
                    self._write(walk, name)
        elif function in self._ends:
            for walk in self._walks():
                if self._ways[walk.way].end == function:
                    self._write(walk, ENDED)
                    self._set(walk.way, None)

    def _walks(self) -> list[Walk]:
        return [walk for walk in (getattr(self._own, "walk", None), self._of_all) if walk is not None]

    def _begin(self, way: int) -> None:
        self._set(way, Walk(way, next(self._numbers)))

    def _set(self, way: int, walk: Walk | None) -> None:
        if self._ways[way].all_threads:
            self._of_all = walk
        else:
            self._own.walk = walk

    def _name(self, code: CodeType) -> str:
        """The file below `src/twinshore`; empty for code elsewhere, and for what runs at an import."""
        name = self._names.get(code)
        if name is None:
            path = code.co_filename
            is_function = code.co_flags & inspect.CO_NEWLOCALS
            name = self._names[code] = path.removeprefix(SOURCE) if is_function and path.startswith(SOURCE) else ""
        return name

    def _write(self, walk: Walk, name: str) -> None:
        os.write(self._file, json.dumps([walk.way, walk.number, name]).encode() + b"\n")


def watched_module(file: Path, *ways: Way) -> tuple[str, str, str]:
    """Stands before the name of a module that is to be watched."""
    return __name__, str(file), json.dumps(ways)


def walks_of(file: Path, way: int = 0) -> list[list[str]]:
    """Which files were entered each time that the way was gone to its end, in order."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for line in file.read_text("utf-8").splitlines() if file.exists() else ():
        of, number, name = json.loads(line)
        if of == way:
            found[number].append(name)
    return [[name for name in walk if name != ENDED] for walk in found.values() if ENDED in walk]


def entered_by_most(walks: Sequence[Sequence[str]], *packages: str) -> list[str]:
    """The files of these packages that were entered at least every second time, in order."""
    times = Counter(name for walk in walks for name in walk if name.partition("/")[0] in packages)
    return [name for name, count in times.items() if 2 * count >= len(walks)]


if __name__ == "__main__":
    hook = EntryHook(Path(sys.argv[1]), [Way(*way) for way in json.loads(sys.argv[2])])
    module = sys.argv[3]
    del sys.argv[1:4]
    hook.install()
    runpy.run_module(module, run_name="__main__", alter_sys=True)
