"""`twinshore status`: the status of each link, by what its mirror last wrote to the store. `twinshore topology`: which
links really run, by the heartbeats that arrived.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli import options
from twinshore.cli.app import build_table, existing_store, load_cli_settings, open_console, print_result
from twinshore.config.sentences import escape_line
from twinshore.kafka.clock import wall_ms

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinshore.monitoring.link_status import LinkView
    from twinshore.replication.core.link_config import LinkRemark

    Seen = tuple[list[LinkView], list[LinkRemark]]


EVERY_S = 1.0


def register(app: typer.Typer) -> None:
    options.add_verbs(app, status, topology)


def status(
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    topics: bool = typer.Option(False, "--topics", help="Also show each topic's offsets."),
    json_output: bool = options.JSON,
    watch: bool = typer.Option(False, "--watch", help="Refresh every second until Ctrl-C."),
) -> None:
    """Shows the rate, lag, latency and incidents of each link, from the store.

    If no mirror reads a source, the command asks the source for its log ends, for two seconds at most.
    """
    from twinshore.monitoring.link_status import read_link_views
    from twinshore.replication.operations.link_admin import list_link_remarks

    with existing_store(settings) as (loaded, store):

        def seen() -> Seen:
            views = read_link_views(store, loaded, link, clock=wall_ms, topics=topics)
            return views, [] if link else list_link_remarks(loaded, store, now_ms=wall_ms())

        if watch:
            _watch(seen, as_json=json_output, topics=topics)
        else:
            _show(seen(), as_json=json_output, topics=topics)


def _show(seen: Seen, *, as_json: bool, topics: bool) -> None:
    from twinshore.monitoring.link_status import as_values

    views, about = seen
    if as_json:
        beside = [{"link": remark.link, "says": remark.sentence} for remark in about]
        typer.echo(json.dumps({"links": [as_values(view, topics=topics) for view in views], "about_links": beside}))
        return
    open_console().print(render(views, about, topics=topics))


def _watch(seen: Callable[[], Seen], *, as_json: bool, topics: bool) -> None:
    from rich.live import Live

    try:
        if as_json or not sys.stdout.isatty():
            while True:
                _show(seen(), as_json=as_json, topics=topics)
                time.sleep(EVERY_S)
        with Live(render(*seen(), topics=topics), console=open_console(), auto_refresh=False) as live:
            while True:
                time.sleep(EVERY_S)
                live.update(render(*seen(), topics=topics), refresh=True)
    except KeyboardInterrupt:
        return


def render(views: list[LinkView], about: Sequence[LinkRemark] = (), *, topics: bool) -> RenderableType:
    """The view for a terminal."""
    from rich.console import Group

    from twinshore.monitoring.link_status import describe_link, describe_open_incidents, find_silent_clusters

    numbers = ("tasks", "records/s", "MB/s", "lag", "p50 ms", "p99 ms", "age s")
    table = build_table(("link", "state"), numbers)
    silent = find_silent_clusters(views)
    parts: list[RenderableType] = [table, *(str(cluster) for cluster in silent)]
    for view in views:
        table.add_row(view.link, *_cells(view))
        parts.append(f"{view.link}: {describe_link(view, silent)}")
        besides = (
            view.says_of_standby,
            view.says_of_lag,
            view.says_of_recovery_point,
            view.says_of_broadcast,
            *view.says_of_operators,
            *view.says_of_proof,
        )
        parts += [f"{view.link}: {said}" for said in besides if said]
    if topics:
        parts.append(_topic_table(views))
    for view in views:
        parts += describe_open_incidents(view, silent)
    parts += [str(remark) for remark in about]
    return Group(*(_plain(part) if isinstance(part, str) else part for part in parts))


def _cells(view: LinkView) -> list[str]:
    status, lag = view.status, str(view.lag) if view.lag else "unknown"
    if status is None:
        return [view.state, *["-"] * 7]
    if not view.runs:
        # An old rate is no rate.
        return [view.state, "-", "-", "-", lag, "-", "-", f"{view.age_s:.0f}"]
    latencies = [f"{value:.1f}" if value is not None else "-" for value in (status.p50_ms, status.p99_ms)]
    rates = [f"{status.records_per_s:,.0f}", f"{status.bytes_per_s / 1e6:.2f}"]
    return [view.state, str(status.tasks), *rates, lag, *latencies, f"{view.age_s:.0f}"]


def _topic_table(views: list[LinkView]) -> RenderableType:
    numbers = ("partitions", "stopped", "twin's end", "source's end", "lag", "MB")
    table = build_table(("link", "topic"), numbers, folds=True)
    for view in views:
        for topic in view.topics:
            counts = [topic.partitions, topic.stopped, topic.twin_end, topic.source_end, topic.lag_records]
            cells = ["unknown" if count is None else f"{count:,}" for count in counts]
            if topic.excluded:
                cells[-2:] = ["-", "(excluded)"]
            if topic.refused:
                # The link has no twin on the target, even if a topic of that name holds data there.
                cells[1:3] = ["refused", "-"]
            name = f"{topic.topic} (paused)" if topic.paused else topic.topic
            table.add_row(view.link, name, *cells, f"{topic.bytes / 1e6:.1f}")
    return table


def _plain(sentence: str) -> RenderableType:
    """A sentence without markup: brackets are literal, and names cannot start a line."""
    from rich.text import Text

    return Text(escape_line(sentence))


def topology(settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Draws what really runs between the clusters of the settings: links, chains, age of the last heartbeat."""
    from twinshore.replication.core.topology_view import draw_topology
    from twinshore.replication.heartbeat import read_topology

    topology = read_topology(load_cli_settings(settings))
    lines = []
    for link in topology.links:
        age = "" if link.age_s is None else f", last heartbeat {link.age_s:.0f} s ago"
        how = f" ({link.naming}{', chain' if link.chain else ''})" if link.settings else " (not in these settings)"
        lines.append(f"{link.link}{how}: {link.state}{age}")
    lines += [*topology.describe_broadcasts(), *topology.describe_homes()]
    lines += [f"{name} cannot be asked: {why}" for name, why in topology.away]
    print_result(
        topology.as_values(), [*lines, *(["", *draw_topology(topology)] if topology.paths else [])], as_json=json_output
    )
