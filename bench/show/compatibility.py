"""`python -m bench.show.compatibility`: clients of many makes and versions come by the proxy, and docs/compatibility.md
says what each of them could do there.

The proxy stands before two clusters of two versions of Kafka; for groups of the new protocol, which the older one does
not have, and for topics and groups that move, others stand before two of the newest. What does not succeed is tried at
the first cluster itself as well, a few times, so that it is known whose doing it is. The exit code is 1 where that is
the proxy's, and docs/proxy.md does not say so.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.clients.client import ADDRESS, LACKS, NO, REFUSED, YES, Job
from bench.clients.trying import STEPS
from bench.kit.kafka_tools import Tools
from bench.kit.machine import this_machine
from bench.kit.makes import MAKES, Make, Outcome, tried
from bench.kit.page import table
from bench.kit.playing import ROOT
from bench.kit.proxies import Ours, Site
from bench.kit.tree import end_in_order_on_sigterm
from testkit.cluster import RigCluster
from testkit.switch_under_load import READY_S, until
from testkit.verbs import run_verb
from twinshore.lab.clients import create_admin_client
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST
from twinshore.lab.mirror_process import COMMAND, MirrorProcess, settings_of
from twinshore.lab.processes import LabError

PAGE = ROOT / "docs" / "compatibility.md"
# What docs/proxy.md says that it refuses.
REFUSED_THERE = ("transaction elsewhere",)
# What is tried before two clusters of the newest version.
NEWEST_ALONE = ("group of the new protocol",)
# What is tried where a mirror carries topics.
MOVES = ("group through a switch and a move of groups", "transactions through a switch")
_DIRECT_TURNS = 3
_MOVED_S = 120.0
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
    """All that was tried. A client that could not be had has no cells; `absent` says why."""

    machine: str
    versions: tuple[str, str]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    tools: tuple[Outcome, ...]
    absent: Mapping[str, str] = field(default_factory=dict)

    def holds(self) -> bool:
        fell = [cell for _, cells in self.rows for cell in cells if cell.falls_short]
        return not fell and all(one.outcome == YES for one in self.tools)

    def to_json(self) -> str:
        """One flat line: how many of each."""
        cells = [cell for _, row in self.rows for cell in row]
        counts = {word: sum(cell.outcome == word for cell in cells) for word in (YES, REFUSED, NO, LACKS)}
        tools = sum(one.outcome == YES for one in self.tools)
        fell = sum(cell.falls_short for cell in cells)
        clients = {"clients": len(self.rows) - len(self.absent), "not_tried": len(self.absent)}
        told = {**clients, **counts, "tools": tools, "tools_tried": len(self.tools), "fell_short": fell}
        return json.dumps({"show": "compatibility", **told})


_HEAD = """\
# Which clients the proxy serves

Written by `make compatibility`, which starts two clusters, Kafka {first} and {second}, [the proxy](proxy.md) before
both, and each client in turn, and takes all of it away again; no cell is typed by hand. On {machine}.

Each client writes to topics on both clusters, reads them back, and is in groups that read both. It is not told that
there are two. Groups of the new protocol are tried before two clusters of Kafka {first}, since {second} does not have
them; one of their topics is at home on the other cluster, with a twin where groups are.

In the last two columns a mirror runs between two clusters of Kafka {first}. While a client writes, `switch run` moves
its topic, and `proxy groups --to` all groups. A group must read all that is acknowledged. Each committed record must be
read once; a transaction that fails is begun again by the same client. No client is started again.

What does not succeed is tried at the first cluster as well, without the proxy, up to {turns} times. There nothing
moves; an aborted transaction leaves control records on the topic, as a switch does.
"""
_KEY = """\
**yes**: it did, and what was read back is right. **refused**: with the sentence of that number. **no**: with what was
seen in place of it. A number at **yes**: what its application was told, and tried again. **-**: this version of the
client has no such thing. Empty: tried with the newest alone. **not tried**: what builds it is not on that machine.
confluent-kafka is librdkafka of the same version, driven by Python."""
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
    steps = list(dict.fromkeys(cell.step for _, cells in found.rows for cell in cells))
    rows = [
        _not_tried(title, found.absent[title], steps) if title in found.absent else _tried(title, cells, steps, notes)
        for title, cells in found.rows
    ]
    parts = [_HEAD.format(first=first, second=second, machine=found.machine, turns=_DIRECT_TURNS), _KEY]
    parts.append(table(["client", *steps], rows).replace("---:", "---"))
    if notes.said:
        parts.append("\n".join(f"{number}. {sentence}" for sentence, number in notes.said.items()))
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


def _tried(title: str, cells: Sequence[Cell], steps: Sequence[str], notes: _Notes) -> list[str]:
    by_step = {cell.step: _cell(cell, notes) for cell in cells}
    return [title, *(by_step.get(step, "") for step in steps)]


def _not_tried(title: str, why: str, steps: Sequence[str]) -> list[str]:
    return [title, f"not tried: {_plain(why)}", *("" for _ in steps[1:])]


def _cell(cell: Cell, notes: _Notes) -> str:
    if cell.outcome == LACKS:
        return "-"
    if cell.outcome == YES:
        return f"yes {notes.mark(_plain(cell.says))}" if cell.says else "yes"
    beside = "; without the proxy it does not always succeed either" if cell.direct in (NO, REFUSED) else ""
    word = "refused" if cell.outcome == REFUSED else "**no**"
    return f"{word} {notes.mark(_plain(cell.says) + beside)}"


def _plain(text: str) -> str:
    """Nothing in it is taken for the page's own marks, and the same sentence is the same however long it took."""
    timeless = re.sub(r" \(after \d+ ms\)", "", ADDRESS.sub("ADDRESS", text))
    return " ".join(timeless.replace("|", "/").replace("`", "'").split()) or "it did not succeed."


@dataclass
class _Stage:
    """Two clusters and the proxy before them, on which clients are tried one after another. `twins`: what is on the
    second cluster is on the first as well. `mirror`: carries what is on the first, so that it can be moved."""

    first: RigCluster
    second: RigCluster
    bootstrap: str
    say: Say
    prefix: str = "compat"
    twins: bool = False
    mirror: MirrorProcess | None = None
    absent: dict[str, str] = field(default_factory=dict)

    def row(self, make: Make, number: int, steps: Sequence[str]) -> Iterator[Cell]:
        """Nothing where the client cannot be had. Steps that move a topic have one each."""
        jobs = [(step,) for step in steps] if self.mirror else [tuple(steps)]
        for turn, some in enumerate(jobs):
            job = self.job(f"{self.prefix}-{number}-{turn}", some)
            try:
                found = [self._told(make, one) for one in tried(make, job)]
            except LabError as error:
                self.absent[make.title] = str(error).splitlines()[0]
                self.say(f"{make.title}: {error}")
                return
            direct = self._direct(make, job.name, [one.step for one in found if one.outcome in (NO, REFUSED)])
            for one in found:
                yield Cell(one.step, one.outcome, one.says.replace(job.name, "NAME"), direct.get(one.step, ""))

    def _direct(self, make: Make, name: str, doubtful: Sequence[str]) -> dict[str, str]:
        """What comes of these steps without the proxy: several times, as a client may fail now and then."""
        direct: dict[str, str] = {}
        for turn in range(_DIRECT_TURNS):
            left = tuple(step for step in doubtful if direct.get(step, YES) == YES)
            if left:
                alone = self.first.bootstrap[0]
                job = replace(self._made(f"direct-{name}-{turn}", left, self.first), bootstrap=alone, alone=True)
                # Where nothing moves, control records are there all the same.
                fence = (sys.executable, str(ROOT / "bench" / "kit" / "control_record.py"), alone, job.first)
                direct |= {one.step: one.outcome for one in tried(make, replace(job, moves=(fence,)))}
        return direct

    def _told(self, make: Make, one: Outcome) -> Outcome:
        self.say(f"{make.title}: {one.step}: {one.outcome} {one.says}".rstrip())
        return one

    def job(self, name: str, steps: tuple[str, ...]) -> Job:
        """With topics of its own, which can be moved where there is a mirror."""
        job = self._made(name, steps, self.second)
        if self.twins:
            self.first.create_topic(job.second, partitions=2)
        if self.mirror is None:
            return job
        run_verb(_groups_to(self.first), self.mirror.settings, within_s=_MOVED_S)
        twins = create_admin_client(self.second.cluster)
        until(lambda: job.first in twins.list_topics(timeout=10).topics, READY_S, f"{job.first} has a twin")
        switch = ("switch", "run", job.first, "--to", self.second.cluster.name, "--yes", "--hold-s", "30")
        command = (sys.executable, "-m", COMMAND)
        settings = ("--settings", str(self.mirror.settings))
        return replace(job, moves=tuple((*command, *verb, *settings) for verb in (switch, _groups_to(self.second))))

    def _made(self, name: str, steps: tuple[str, ...], second: RigCluster) -> Job:
        job = Job(self.bootstrap, f"{name}-first", f"{name}-second", f"{name}-made", name, steps)
        self.first.create_topic(job.first, partitions=2)
        second.create_topic(job.second, partitions=2)
        return job


def _groups_to(there: RigCluster) -> tuple[str, ...]:
    return ("proxy", "groups", "--to", there.cluster.name, "--yes")


def run(makes: Sequence[Make], steps: Sequence[str], say: Say, *, tools: bool = True) -> Compatibility:
    """Tries these clients for these steps."""
    found: dict[str, dict[str, Cell]] = {make.title: {} for make in makes}
    absent: dict[str, str] = {}
    told: tuple[Outcome, ...] = ()
    elsewhere = (*NEWEST_ALONE, *MOVES)
    parts = ((_older, [step for step in steps if step not in elsewhere]), (_newest, NEWEST_ALONE), (_moving, MOVES))
    for opened, own in parts:
        asked = [step for step in own if step in steps]
        with ExitStack() as stack:
            if not asked and not (tools and opened is _older):
                continue
            stage = opened(stack, say)
            for number, make in enumerate(makes):
                if asked and make.title not in absent and (make.moved or own is not MOVES):
                    found[make.title] |= {cell.step: cell for cell in stage.row(make, number, asked)}
                    absent |= stage.absent
            if tools and opened is _older:
                told = Tools(stage.job("compat-tools", ())).all()
                for one in told:
                    say(f"{one.step}: {one.outcome} {one.says}".rstrip())
    machine = this_machine()
    where = f"{machine.cores} cores, {machine.system}, Python {machine.python}, Java {machine.java}"
    rows = tuple(
        (title, () if title in absent else tuple(cells[step] for step in steps if step in cells))
        for title, cells in found.items()
    )
    return Compatibility(where, (KAFKA_NEWEST, KAFKA_3), rows, told, absent)


def _older(stack: ExitStack, say: Say) -> _Stage:
    """Clusters of two versions."""
    first = stack.enter_context(RigCluster("first", version=KAFKA_NEWEST))
    second = stack.enter_context(RigCluster("second", version=KAFKA_3))
    return _Stage(first, second, _served(stack, first, second, _folder(stack)), say)


def _newest(stack: ExitStack, say: Say) -> _Stage:
    """Two clusters of one version: topics of the second have twins on the first."""
    first, second = (stack.enter_context(RigCluster(name, version=KAFKA_NEWEST)) for name in ("first", "second"))
    bootstrap = _served(stack, first, second, _folder(stack), carried="newest-.*-second")
    return _Stage(first, second, bootstrap, say, "newest", twins=True)


def _moving(stack: ExitStack, say: Say) -> _Stage:
    """The same, and a mirror that carries topics of the first to the second."""
    first, second = (stack.enter_context(RigCluster(name, version=KAFKA_NEWEST)) for name in ("first", "second"))
    folder = _folder(stack)
    few = {"disk_warn_percent": 0, "tasks_per_link": 1, "lease_s": 4}
    text = settings_of(first.cluster, second.cluster, store=folder / "store.db", topics="moving-.*-first", mirror=few)
    mirror = MirrorProcess(folder, text)
    mirror.start()
    stack.callback(mirror.end)
    bootstrap = _served(stack, first, second, folder)
    return _Stage(first, second, bootstrap, say, "moving", mirror=mirror)


def _folder(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinshore-compatibility-")))


def _served(stack: ExitStack, first: RigCluster, second: RigCluster, folder: Path, carried: str = "") -> str:
    serving = Ours(guarded=False, carried=carried).start(Site(first, second.cluster, folder))
    stack.callback(serving.end)
    return serving.bootstrap


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
