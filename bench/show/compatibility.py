"""`python -m bench.show.compatibility`: clients of many makes and versions come by the proxy, and docs/compatibility.md
says what each of them could do there.

The proxy stands before two clusters of two versions of Kafka; for groups of the new protocol, which the older one does
not have, another one stands before two of the newest. What does not succeed is tried at the first cluster
itself as well, a few times, so that it is known whose doing it is. The exit code is 1 where that is the proxy's, and
docs/proxy.md does not say so.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.clients.trying import LACKS, NO, REFUSED, STEPS, YES, Job
from bench.kit.kafka_tools import Tools
from bench.kit.machine import this_machine
from bench.kit.makes import MAKES, Make, Outcome, tried
from bench.kit.page import table
from bench.kit.playing import ROOT
from bench.kit.proxies import Ours, Site
from bench.kit.tree import end_in_order_on_sigterm
from twinshore.lab import KAFKA_3, KAFKA_NEWEST, LabCluster, LabError

PAGE = ROOT / "docs" / "compatibility.md"
# What docs/proxy.md says that it refuses.
REFUSED_THERE = ("transaction elsewhere",)
# What is tried before two clusters of the newest version.
NEWEST_ALONE = ("group of the new protocol",)
_DIRECT_TURNS = 3
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """What came of a step through the proxy; `direct` is what came of it without, where it was tried."""

    step: str
    outcome: str
    says: str = ""
    direct: str = ""

    @property
    def falls_short(self) -> bool:
        """Whether the proxy does not do what it promises."""
        if self.outcome in (YES, LACKS) or self.direct in (NO, REFUSED):
            return False
        return not (self.outcome == REFUSED and self.step in REFUSED_THERE)


@dataclass(frozen=True, slots=True)
class Compatibility:
    """All that was tried. `absent`: which client could not be had, and why."""

    machine: str
    versions: tuple[str, str]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    tools: tuple[Outcome, ...]
    absent: tuple[tuple[str, str], ...] = ()

    def holds(self) -> bool:
        fell = [cell for _, cells in self.rows for cell in cells if cell.falls_short]
        return not fell and all(one.outcome == YES for one in self.tools)

    def to_json(self) -> str:
        """One flat line: how many of each."""
        cells = [cell for _, row in self.rows for cell in row]
        counts = {word: sum(cell.outcome == word for cell in cells) for word in (YES, REFUSED, NO, LACKS)}
        tools = sum(one.outcome == YES for one in self.tools)
        fell = sum(cell.falls_short for cell in cells)
        told = {"clients": len(self.rows), **counts, "tools": tools, "tools_tried": len(self.tools), "fell_short": fell}
        return json.dumps({"show": "compatibility", **told})


_HEAD = """\
# Which clients the proxy serves

Written by `make compatibility`, which starts two clusters, Kafka {first} and {second}, [the proxy](proxy.md) before
both, and each client in turn, and takes all of it away again; no cell is typed by hand. On {machine}.

Each client writes to topics on both clusters, reads them back, and is in groups that read both. It is not told that
there are two. Groups of the new protocol are tried before two clusters of Kafka {first}, since {second} does not have
them; one of their topics is at home on the other cluster, with a twin where groups are. What does not succeed is tried
at the first cluster as well, without the proxy, up to {turns} times.
"""
_KEY = """\
**yes**: it did, and what was read back is right. **refused**: with the sentence of that number. **no**: with what was
seen in place of it. **-**: this version of the client has no such thing. confluent-kafka is librdkafka of the same
version, driven by Python."""
_TOOLS = "## Kafka's own tools"
_LINE = "The line that it ends with:\n\n```json\n"


class _Notes:
    """Sentences below the table, each once."""

    def __init__(self) -> None:
        self.said: dict[str, int] = {}

    def mark(self, sentence: str) -> str:
        return f"({self.said.setdefault(sentence, len(self.said) + 1)})"


def page_of(found: Compatibility) -> str:
    """docs/compatibility.md."""
    first, second = found.versions
    notes = _Notes()
    rows = [[title, *(_cell(cell, notes) for cell in cells)] for title, cells in found.rows]
    parts = [_HEAD.format(first=first, second=second, machine=found.machine, turns=_DIRECT_TURNS), _KEY]
    steps = [cell.step for cell in found.rows[0][1]] if found.rows else []
    parts.append(table(["client", *steps], rows).replace("---:", "---"))
    if notes.said:
        parts.append("\n".join(f"{number}. {sentence}" for sentence, number in notes.said.items()))
    if found.absent:
        parts.append("\n".join(f"- {title} is not here: {why}" for title, why in found.absent))
    parts += [_tools(first, found.tools), f"{_LINE}{found.to_json()}\n```"]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def with_tools(page: str, version: str, tools: Sequence[Outcome]) -> str:
    """The page with what came of the tools anew, and all of clients as it was."""
    before, _, rest = page.partition(_TOOLS)
    told = json.loads(rest.partition(_LINE)[2].partition("\n")[0])
    told |= {"tools": sum(one.outcome == YES for one in tools), "tools_tried": len(tools)}
    return f"{before}{_tools(version, tools)}\n\n{_LINE}{json.dumps(told)}\n```\n"


def _tools(version: str, tools: Sequence[Outcome]) -> str:
    told = [[one.step, one.outcome if one.outcome == YES else f"**no**: {_plain(one.says)}"] for one in tools]
    head = f"{_TOOLS}\n\nOf Kafka {version}, on topics of both clusters.\n\n"
    return head + table(["tool", "works"], told).replace("---:", "---")


def _cell(cell: Cell, notes: _Notes) -> str:
    if cell.outcome in (YES, LACKS):
        return {YES: "yes", LACKS: "-"}[cell.outcome]
    beside = "; without the proxy it does not always succeed either" if cell.direct in (NO, REFUSED) else ""
    word = "refused" if cell.outcome == REFUSED else "**no**"
    return f"{word} {notes.mark(_plain(cell.says) + beside)}"


def _plain(text: str) -> str:
    """Nothing in it is taken for the page's own marks, and the same sentence is the same however long it took."""
    timeless = re.sub(r" \(after \d+ ms\)", "", text)
    return " ".join(timeless.replace("|", "/").replace("`", "'").split()) or "it did not succeed."


@dataclass
class _Stage:
    """Two clusters and the proxy before them, on which clients are tried one after another. `twins`: what is on the
    second cluster is on the first as well."""

    first: LabCluster
    second: LabCluster
    bootstrap: str
    say: Say
    prefix: str = "compat"
    twins: bool = False
    absent: list[tuple[str, str]] = field(default_factory=list)

    def row(self, make: Make, number: int, steps: Sequence[str]) -> tuple[Cell, ...]:
        """Nothing where the client cannot be had."""
        if not steps:
            return ()
        job = self.job(f"{self.prefix}-{number}", tuple(steps))
        try:
            found = {one.step: self._told(make, one) for one in tried(make, job)}
        except LabError as error:
            self.absent.append((make.title, str(error).splitlines()[0]))
            self.say(f"{make.title}: {error}")
            return ()
        direct = self._direct(make, number, [one.step for one in found.values() if one.outcome in (NO, REFUSED)])
        return tuple(
            Cell(step, found[step].outcome, found[step].says.replace(job.name, "NAME"), direct.get(step, ""))
            for step in steps
        )

    def _direct(self, make: Make, number: int, doubtful: Sequence[str]) -> dict[str, str]:
        """What comes of these steps without the proxy: several times, as a client may fail now and then."""
        direct: dict[str, str] = {}
        for turn in range(_DIRECT_TURNS):
            left = tuple(step for step in doubtful if direct.get(step, YES) == YES)
            if left:
                job = self.job(f"direct-{number}-{turn}", left, self.first)
                alone = replace(job, bootstrap=self.first.bootstrap[0], alone=True)
                direct |= {one.step: one.outcome for one in tried(make, alone)}
        return direct

    def _told(self, make: Make, one: Outcome) -> Outcome:
        self.say(f"{make.title}: {one.step}: {one.outcome} {one.says}".rstrip())
        return one

    def job(self, name: str, steps: tuple[str, ...], second: LabCluster | None = None) -> Job:
        """With topics of its own, the other one on `second`."""
        job = Job(self.bootstrap, f"{name}-first", f"{name}-second", f"{name}-made", name, steps)
        self.first.create_topic(job.first, partitions=2)
        (second or self.second).create_topic(job.second, partitions=2)
        if self.twins and second is None:
            self.first.create_topic(job.second, partitions=2)
        return job


def run(makes: Sequence[Make], steps: Sequence[str], say: Say, *, tools: bool = True) -> Compatibility:
    """Tries these clients for these steps."""
    with ExitStack() as stack:
        first = stack.enter_context(LabCluster("first", version=KAFKA_NEWEST))
        second = stack.enter_context(LabCluster("second", version=KAFKA_3))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinshore-compatibility-")))
        serving = Ours(guarded=False).start(Site(first, second.cluster, folder))
        stack.callback(serving.end)
        stage = _Stage(first, second, serving.bootstrap, say)
        older = [step for step in steps if step not in NEWEST_ALONE]
        rows = [(make.title, stage.row(make, number, older)) for number, make in enumerate(makes)]
        if len(older) < len(steps):
            newest = _newest(stack, first, say)
            newer = [step for step in steps if step in NEWEST_ALONE]
            found = [newest.row(make, number, newer) for number, make in enumerate(makes)]
            rows = [(title, _in_order(steps, (*some, *more))) for (title, some), more in zip(rows, found, strict=True)]
        told = Tools(stage.job("compat-tools", ())).all() if tools else ()
        for one in told:
            say(f"{one.step}: {one.outcome} {one.says}".rstrip())
    machine = this_machine()
    where = f"{machine.cores} cores, {machine.system}, Python {machine.python}, Java {machine.java}"
    there = tuple((title, cells) for title, cells in rows if cells)
    return Compatibility(where, (KAFKA_NEWEST, KAFKA_3), there, told, tuple(stage.absent))


def _in_order(steps: Sequence[str], cells: Sequence[Cell]) -> tuple[Cell, ...]:
    by_step = {cell.step: cell for cell in cells}
    return tuple(by_step[step] for step in steps if step in by_step)


def _newest(stack: ExitStack, first: LabCluster, say: Say) -> _Stage:
    """The first cluster with another one of its version, whose topics have twins on it."""
    third = stack.enter_context(LabCluster("third", version=KAFKA_NEWEST))
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinshore-compatibility-")))
    serving = Ours(guarded=False, carried="newest-.*-second").start(Site(first, third.cluster, folder))
    stack.callback(serving.end)
    return _Stage(first, third, serving.bootstrap, say, "newest", twins=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error, the page, one line of JSON to standard output."""
    parser = argparse.ArgumentParser(prog="bench.show.compatibility", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="the beginning of a client's name; several times")
    parser.add_argument("--step", action="append", default=[], help=f"one of {', '.join(STEPS)}; several times")
    parser.add_argument("--tools-only", action="store_true", help="Kafka's own tools anew; the page's clients stay")
    parser.add_argument("--no-tools", action="store_true", help="leave out Kafka's own tools")
    parser.add_argument("--page", type=Path, help="write this page, whatever was tried")
    asked = parser.parse_args(arguments)
    end_in_order_on_sigterm()
    for name in _unknown(asked.step, STEPS):
        parser.error(f"--step {name}: there is {', '.join(STEPS)}")
    if asked.tools_only:
        return _tools_anew(asked.page or PAGE)
    makes = [make for make in MAKES if not asked.only or any(make.title.startswith(name) for name in asked.only)]
    steps = asked.step or tuple(STEPS)
    found = run(makes, steps, lambda line: print(line, file=sys.stderr, flush=True), tools=not asked.no_tools)
    whole = not (asked.only or asked.step or asked.no_tools)
    page = asked.page or (PAGE if whole else None)
    if page is not None:
        page.write_text(page_of(found), encoding="utf-8")
    print(found.to_json(), flush=True)
    return 0 if found.holds() else 1


def _tools_anew(page: Path) -> int:
    found = run((), (), lambda line: print(line, file=sys.stderr, flush=True))
    page.write_text(with_tools(page.read_text(encoding="utf-8"), found.versions[0], found.tools), encoding="utf-8")
    print(found.to_json(), flush=True)
    return 0 if found.holds() else 1


def _unknown(names: Iterable[str], known: Iterable[str]) -> list[str]:
    return [name for name in names if name not in known]


if __name__ == "__main__":
    sys.exit(main())
