"""`twinshore delay`: how far behind each link is, who watches, what stands; and the watching itself."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.log_lines import LogLines
from twinshore.cli.looking import JSON, LINKS, SETTINGS, load
from twinshore.fleet import ConfigError
from twinshore.fleet.settings_edge import did_you_mean

if TYPE_CHECKING:
    from twinshore.fleet import Link
    from twinshore.store import AlarmRow, DelayPlace, Store, WatchRow

OK, WARNING, CRITICAL = 0, 1, 2
TOPIC = typer.Option("", "--topic", help="Only this topic.")
TRIED = typer.Option(None, "--settings", help="Try this file's [delay]; without it the defaults.")
PIPE_COLUMNS = 1000
NOT_WATCHED = "nothing has been watched with these settings here"
WATCH_IT = "start `twinshore delay watch`, or name its settings with --settings"


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    delay = typer.Typer(help="How far behind a target is, for how long, and who is told.", invoke_without_command=True)
    delay.callback()(show)
    delay.command("watch")(watch)
    delay.command("watch-watchers")(watch_watchers)
    delay.command("forget")(forget)
    delay.command("check")(check)
    delay.command("alarms")(alarms)
    delay.command("simulate")(simulate)
    app.add_typer(delay, name="delay")


def show(
    context: typer.Context,
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    topic: str = TOPIC,
    json_output: bool = JSON,
) -> None:
    """Shows how far behind each topic is, as a monitor saw it last, and what alarms stand. Asks no cluster."""
    from twinshore.store.opening import open_found

    if context.invoked_subcommand:
        return
    loaded = load(settings)
    with open_found(loaded, NOT_WATCHED, WATCH_IT) as store:
        names = [one.name for one in loaded.chosen(link)]
        watched = [row for name in names for row in store.delay.places(name)]
        places = [row for row in watched if topic in ("", row.topic)]
        standing = _standing(store, loaded.chosen(link))
        watchers = store.delay.watches()
    if topic and not places:
        near = did_you_mean(topic, sorted({row.topic for row in watched}))
        raise ConfigError(f"no place of topic {topic} is watched{near}")
    now_ms = time.time_ns() // 1_000_000
    heads = _heads(standing)
    if json_output:
        values = {
            "places": [_values(row) | {"age_s": round((now_ms - row.at_ms) / 1000, 3)} for row in places],
            "alarms": [asdict(row) | {"part_of": heads[row].id if heads[row] != row else None} for row in standing],
            "watchers": [asdict(row) | {"age_s": round((now_ms - row.beaten_ms) / 1000, 3)} for row in watchers],
        }
        typer.echo(json.dumps(values))
        return
    _table(places, now_ms)
    for alarm in standing:
        if heads[alarm] == alarm:
            typer.echo(f"alarm for {(now_ms - alarm.raised_ms) / 1000:.0f} s: {alarm.sentence}")
            for part in [row for row in standing if heads[row] == alarm and row != alarm]:
                typer.echo(f"  with it, for {(now_ms - part.raised_ms) / 1000:.0f} s: {part.sentence}")
    for row in watchers:
        typer.echo(f"{row.name}: {row.sentence}, {(now_ms - row.beaten_ms) / 1000:.0f} s ago")
    if not watchers:
        typer.echo("nobody watches: start `twinshore delay watch`")


def watch(settings: Path = SETTINGS, link: list[str] = LINKS) -> None:
    """Watches the links until stopped: samples both clusters, whoever mirrors them, keeps the history, calls."""
    from twinshore.delay.monitor import Monitor

    loaded = load(settings)
    log = LogLines()
    try:
        Monitor(loaded, loaded.chosen(link), log).run()
    finally:
        log.close()


def watch_watchers(settings: Path = SETTINGS) -> None:
    """Watches, until stopped, that every monitor and every mirror of the store is alive. Run it somewhere else."""
    from twinshore.delay.watchers import Watcher

    log = LogLines()
    try:
        Watcher(load(settings), log).run()
    finally:
        log.close()


def forget(
    name: str = typer.Argument(help="As `twinshore delay` shows it before the colon."), settings: Path = SETTINGS
) -> None:
    """Expects no more of a monitor, or of whoever watched them, that was killed and will not come again."""
    from twinshore.delay.watchers import key_of
    from twinshore.store.opening import open_found

    with open_found(load(settings), NOT_WATCHED, WATCH_IT) as store:
        names = [row.name for row in store.delay.watches()]
        key = key_of(name)
        missed = [row for row in store.delay.alarms(key.link, open_only=True) if row.kind == key.kind]
        if name not in names and not missed:
            known = "; ".join(names) or "nobody"
            raise ConfigError(f"no {name!r} watches or is missed", hint=f"there are: {known}")
        store.delay.end_watch(name)
        for row in missed:
            store.delay.clear_alarm(row.id, time.time_ns() // 1_000_000)
    typer.echo(f"{name} is not missed any more; if it is alive after all, it says so again at once")


def check(
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    topic: str = TOPIC,
    item: str = typer.Option("", "--item", help="Print one number alone: lag, recovery-point or alarms."),
    discovery: bool = typer.Option(
        False, "--discovery", help="Print Zabbix's low-level discovery of links and topics."
    ),
) -> None:
    """One look for scripts, Nagios and Zabbix: exit code 0 is well, 1 means alarms stand, or figures are old or
    missing, 2 that nobody watches a link.

    With --topic it looks at that topic's alarms, and at those of whole links. --item prints no number, and ends with 2,
    where the figure is too old to be today's, or where nobody would raise an alarm.
    """
    from twinshore.delay import zabbix
    from twinshore.delay.ages import aged, bare, fresh_s, paused
    from twinshore.store.opening import open_found

    if item not in ("", *zabbix.ITEMS):
        raise ConfigError(f"no item {item!r}; known: {', '.join(zabbix.ITEMS)}")
    loaded = load(settings)
    with open_found(loaded, NOT_WATCHED, WATCH_IT) as store:
        names = [one.name for one in loaded.chosen(link)]
        places = [row for name in names for row in store.delay.places(name)]
        standing = _standing(store, loaded.chosen(link))
        standing += [row for row in store.delay.alarms(open_only=True, limit=None) if row.kind == "monitor silent"]
        watchers = store.delay.watches()
    if discovery:
        typer.echo(zabbix.discovery(places))
        return
    now_ms = time.time_ns() // 1_000_000
    told = _unseen(names, watchers, now_ms)
    if item:
        # No number at all is what makes Zabbix say that it knows nothing; 0 would say that all is well.
        why = zabbix.unknown(item, places, topic, now_ms, fresh_s(loaded.delay.section), told)
        if why:
            typer.echo(f"no {item}: {why}", err=True)
            raise typer.Exit(CRITICAL)
        # One cause counts once; of a topic all that is wrong with it counts.
        counted = standing if topic else [row for row, head in _heads(standing).items() if row == head]
        typer.echo(f"{zabbix.figure(item, places, counted, topic):g}")
        return
    heads, known = _heads(standing), {row.topic for row in places}
    if topic:
        places = [row for row in places if row.topic == topic]
        standing = [row for row in standing if row.topic in ("", topic)]
    if topic and not places:
        told.append(f"no place of topic {topic} is watched{did_you_mean(topic, sorted(known))}")
    if told:
        # What stands is what was known last, and worth as much as its age.
        typer.echo(f"CRITICAL: {'; '.join([*told, *_sentences(standing, heads, places, now_ms)])}")
        raise typer.Exit(CRITICAL)
    warnings = [*_sentences(standing, heads, places, now_ms), *aged(places, now_ms, fresh_s(loaded.delay.section))]
    warnings += bare(names if not topic else (), places)
    if warnings:
        typer.echo(f"WARNING: {'; '.join(warnings)}")
        raise typer.Exit(WARNING)
    typer.echo(f"OK: {'; '.join([_in_figures(places), *paused(places, topic)])}")


def _in_figures(places: Sequence[DelayPlace]) -> str:
    worst_ms = max((row.recovery_point_ms for row in places if not row.group), default=0)
    return f"{len(places)} places watched, recovery point {worst_ms / 1000:.1f} s"


def _standing(store: Store, links: Sequence[Link]) -> list[AlarmRow]:
    """The open alarms of these links, of their clusters and of the store."""
    from twinshore.delay.causes import STORE

    clusters = sorted({cluster for one in links for cluster in (one.source, one.target)})
    names = [*(one.name for one in links), *clusters, STORE.link]
    return [row for name in names for row in store.delay.alarms(name, open_only=True)]


def _heads(standing: Sequence[AlarmRow]) -> dict[AlarmRow, AlarmRow]:
    """For each alarm the one that it follows from; itself where it follows from none of them."""
    from twinshore.delay.causes import AlarmKey, AlarmKind, root

    rows = {AlarmKey(row.link, AlarmKind(row.kind), row.topic, row.group): row for row in standing}
    return {row: rows[root(key, rows)] for key, row in rows.items()}


def _sentences(
    standing: Sequence[AlarmRow], heads: Mapping[AlarmRow, AlarmRow], places: Sequence[DelayPlace], now_ms: int
) -> list[str]:
    """Each alarm's, a cause's with its parts behind it: for how long it has stood, and when its topic was read last."""
    read_ms: dict[tuple[str, str], int] = {}
    for place in places:
        if not place.group:
            key = (place.link, place.topic)
            read_ms[key] = min(place.at_ms, read_ms.get(key, place.at_ms))
    said = {}
    for row in standing:
        at_ms = read_ms.get((row.link, row.topic))
        read = f", read {(now_ms - at_ms) / 1000:.0f} s ago" if at_ms is not None else ""
        said[row] = f"{row.sentence} [for {(now_ms - row.raised_ms) / 1000:.0f} s{read}]"
    found = []
    for row in [row for row in standing if heads[row] == row or heads[row] not in said]:
        parts = [said[one] for one in standing if heads[one] == row and one != row]
        listed = f" (with it {len(parts)}: {'; '.join(parts)})" if parts else ""
        found.append(f"{said[row]}{listed}")
    return found


def _unseen(links: Sequence[str], watchers: Sequence[WatchRow], now_ms: int) -> list[str]:
    """What nobody looks at now, in sentences."""
    from twinshore.delay.watchers import stale, unwatched

    told = [f"{name} has said nothing for {age_s:.0f} s" for name, age_s in stale(watchers, now_ms).items()]
    without = unwatched(links, watchers, now_ms)
    if without:
        told.append(f"no monitor watches {', '.join(without)}: start `twinshore delay watch`")
    return told


def alarms(
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    limit: int = typer.Option(50, "--limit", help="The newest so many.", min=1),
    json_output: bool = JSON,
) -> None:
    """The history of alarms, newest first."""
    from twinshore.store.opening import open_found

    loaded = load(settings)
    # Without --link also those of monitors that fell silent, which are no link's.
    names = [one.name for one in loaded.chosen(link)] if link else []
    with open_found(loaded, NOT_WATCHED, WATCH_IT) as store:
        rows = store.delay.alarms(*names, limit=limit)
    if json_output:
        typer.echo(json.dumps([asdict(row) for row in rows]))
        return
    for row in rows:
        typer.echo(f"{_moment(row.raised_ms)} {_how_long(row)}  {row.sentence}")
    if not rows:
        typer.echo(f"no alarm {'of these links ' if names else ''}has ever risen")


def simulate(
    settings: Path | None = TRIED,
    seed: int = typer.Option(1, "--seed", help="Which traffic is made up."),
    hours: float = typer.Option(
        3.0, "--hours", help="How long a mirror without a fault is watched.", min=0.1, max=1000
    ),
    runs: int = typer.Option(10, "--runs", help="How often each fault is tried.", min=1, max=10000),
) -> None:
    """Tries both algorithms on made-up traffic: how soon each finds a fault, and what each says for nothing."""
    from twinshore.delay.simulation.trial import table
    from twinshore.fleet.settings_delay import DelaySettings

    typer.echo(table(seed, hours, runs, load(settings).delay if settings else DelaySettings()))


def _how_long(row: AlarmRow) -> str:
    return "stands" if row.cleared_ms is None else f"for {(row.cleared_ms - row.raised_ms) / 1000:.0f} s"


def _moment(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at_ms / 1000))


def _values(row: DelayPlace) -> dict[str, object]:
    return {name: value for name, value in asdict(row).items() if name != "waiting"}


def _table(places: Sequence[DelayPlace], now_ms: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("link", "topic", "group"):
        table.add_column(column, overflow="fold")
    for column in ("partitions", "source", "target", "lag", "behind s", "seen s ago"):
        table.add_column(column, justify="right", no_wrap=True)
    for key in sorted({(row.link, row.topic, row.group) for row in places}):
        ours = [row for row in places if (row.link, row.topic, row.group) == key]
        about = "~" if any(row.axis == "foreign" for row in ours) else ""
        counts = [len(ours), sum(row.source_end for row in ours), sum(row.target_end for row in ours)]
        lag, behind_ms = sum(row.lag_records for row in ours), max(row.recovery_point_ms for row in ours)
        seen_s = max(now_ms - row.at_ms for row in ours) / 1000
        cells = [f"{about}{lag:,}", f"{about}{behind_ms / 1000:.1f}", f"{seen_s:.0f}"]
        words = [*key, *(f"{count:,}" for count in counts), *cells]
        # As it is: brackets in a group's name are not markup.
        table.add_row(*(Text(word) for word in words))
    (Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS)).print(table)
