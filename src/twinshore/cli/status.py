"""`twinshore status`: how each link stands, by the last word that its mirror left in the store."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from twinshore.cli.looking import JSON, LINKS, SETTINGS, chosen, load, open_if_there
from twinshore.fleet import ConfigError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from twinshore.fleet.settings import Settings
    from twinshore.store import LedgerRow, LinkStatus, Position, Store

WATCH = typer.Option(False, "--watch", help="Show it anew every second until Ctrl-C.")
TOPICS = typer.Option(False, "--topics", help="Every topic's positions too.")

EVERY_S = 1.0
PIPE_COLUMNS = 1000
# The mirror says a word with each writing of receipts; after some of them missed, nobody speaks.
WORDS_MISSED = 4
STALE_S_MIN = 5.0


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic's partitions together; offsets are sums over them."""

    topic: str
    partitions: int
    stopped: int
    twin_end: int
    source_end: int
    lag_records: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LinkView:
    """A link as `status` shows it. `word` is None where no mirror has ever run it."""

    link: str
    word: LinkStatus | None
    age_s: float
    stale: bool
    topics: tuple[TopicView, ...]
    incidents: tuple[LedgerRow, ...]

    @property
    def says(self) -> str:
        """The link's sentence, or why there is none to believe."""
        if self.word is None:
            return "no word yet: has `twinshore mirror run` been started?"
        if self.stale:
            return f"stale: no word for {self.age_s:.0f} s: is the mirror running? Last: {self.word.sentence}"
        return self.word.sentence


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    app.command("status")(status)


def status(
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    topics: bool = TOPICS,
    json_output: bool = JSON,
    watch: bool = WATCH,
) -> None:
    """Shows how each link stands: rate, lag, latency, incidents. Reads the store alone, asks no cluster."""
    loaded = load(settings)
    store = open_if_there(loaded)
    if store is None:
        raise ConfigError(
            f"there is no store at {loaded.store.url}: no mirror has run with these settings here",
            hint="start one with `twinshore mirror run`, or name its settings with --settings",
        )
    names = [one.name for one in chosen(loaded, link)]
    with store:
        if watch:
            _watch(store, loaded, names, as_json=json_output, topics=topics)
        else:
            _show(look(store, loaded, names, now_ms=_now_ms(), topics=topics), as_json=json_output, topics=topics)


def look(store: Store, settings: Settings, names: list[str], *, now_ms: int, topics: bool = False) -> list[LinkView]:
    """How these links stand now; their topics too where they are asked for."""
    stale_after_s = max(STALE_S_MIN, WORDS_MISSED * settings.mirror.receipts_s)
    words = {word.link: word for word in store.link_statuses()}
    views = []
    for name in names:
        word = words.get(name)
        age_s = max(0.0, (now_ms - word.updated_ms) / 1000) if word else 0.0
        views.append(
            LinkView(
                name,
                word,
                age_s,
                stale=age_s > stale_after_s,
                topics=tuple(_by_topic(store.positions(name))) if topics else (),
                incidents=store.incidents(name, open_only=True),
            )
        )
    return views


def _by_topic(positions: Iterable[Position]) -> Iterator[TopicView]:
    grouped: dict[str, list[Position]] = {}
    for position in positions:
        grouped.setdefault(position.topic, []).append(position)
    for topic, ours in sorted(grouped.items()):
        yield TopicView(
            topic,
            partitions=len(ours),
            stopped=sum(position.state == "stopped" for position in ours),
            twin_end=sum(position.to_offset for position in ours),
            source_end=sum(position.source_end for position in ours),
            lag_records=sum(position.lag_records for position in ours),
            records=sum(position.records for position in ours),
            bytes=sum(position.bytes for position in ours),
        )


def as_values(view: LinkView, *, topics: bool) -> dict[str, Any]:
    """The view for programs."""
    values: dict[str, Any] = {"link": view.link, "age_s": round(view.age_s, 3), "stale": view.stale, "says": view.says}
    if view.word is not None:
        values |= asdict(view.word)
    if topics:
        values["topics"] = [asdict(topic) for topic in view.topics]
    values["incidents"] = [{"id": row.id, "opened_ms": row.opened_ms, **asdict(row.incident)} for row in view.incidents]
    return values


def _show(views: list[LinkView], *, as_json: bool, topics: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"links": [as_values(view, topics=topics) for view in views]}))
        return
    _console().print(render(views, topics=topics))


def _watch(store: Store, settings: Settings, names: list[str], *, as_json: bool, topics: bool) -> None:
    from rich.live import Live

    def views() -> list[LinkView]:
        return look(store, settings, names, now_ms=_now_ms(), topics=topics)

    try:
        if as_json or not sys.stdout.isatty():
            while True:
                _show(views(), as_json=as_json, topics=topics)
                time.sleep(EVERY_S)
        with Live(render(views(), topics=topics), console=_console(), auto_refresh=False) as live:
            while True:
                time.sleep(EVERY_S)
                live.update(render(views(), topics=topics), refresh=True)
    except KeyboardInterrupt:
        return


def _console() -> Console:
    from rich.console import Console

    # A pipe has no width, and what reads it wants whole lines.
    return Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS)


def render(views: list[LinkView], *, topics: bool) -> RenderableType:
    """The view for people."""
    from rich.console import Group
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("link", "state"):
        table.add_column(column, no_wrap=True)
    for column in ("lanes", "records/s", "MB/s", "lag", "p50 ms", "p99 ms", "age s"):
        table.add_column(column, justify="right", no_wrap=True)
    parts: list[RenderableType] = [table]
    for view in views:
        table.add_row(view.link, *_cells(view))
        parts.append(f"{view.link}: {view.says}")
    if topics:
        parts.append(_topic_table(views))
    for view in views:
        parts += [_in_words(row) for row in view.incidents]
    return Group(*(_plain(part) if isinstance(part, str) else part for part in parts))


def _in_words(row: LedgerRow) -> str:
    """The row in a sentence; one of the whole link has no topic to name."""
    one = row.incident
    topic = f", {one.topic}" if one.topic else ""
    place = f"{topic}-{one.partition}" if topic and one.partition >= 0 else topic
    return f"{one.link}: open incident {row.id}, {one.kind}{place}: {one.sentence}"


def _cells(view: LinkView) -> list[str]:
    word = view.word
    if word is None:
        return ["no word yet", *["-"] * 7]
    state = "stale" if view.stale else word.state
    latencies = [f"{value:.1f}" if value is not None else "-" for value in (word.p50_ms, word.p99_ms)]
    # A rate of long ago is no rate.
    rates = ["-", "-"] if view.stale else [f"{word.records_per_s:,.0f}", f"{word.bytes_per_s / 1e6:.2f}"]
    return [state, str(word.lanes), *rates, f"{word.lag_records:,}", *latencies, f"{view.age_s:.0f}"]


def _topic_table(views: list[LinkView]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("link", "topic"):
        table.add_column(column, overflow="fold")
    for column in ("partitions", "stopped", "twin's end", "source's end", "lag", "MB"):
        table.add_column(column, justify="right", no_wrap=True)
    for view in views:
        for one in view.topics:
            counts = [one.partitions, one.stopped, one.twin_end, one.source_end, one.lag_records]
            table.add_row(view.link, one.topic, *(f"{count:,}" for count in counts), f"{one.bytes / 1e6:.1f}")
    return table


def _plain(sentence: str) -> RenderableType:
    """A sentence as it is: brackets in it are not markup."""
    from rich.text import Text

    return Text(sentence)


def _now_ms() -> int:
    return int(time.time() * 1000)
