"""`twinshore link`: what holds for each link, and what an operator changes on it while it runs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from twinshore.cli.looking import JSON, LINKS, SETTINGS, chosen, load, open_if_there, who
from twinshore.cli.recovering import recover
from twinshore.fleet import ConfigError

if TYPE_CHECKING:
    from twinshore.fleet import Link
    from twinshore.fleet.settings import Settings
    from twinshore.mirror.control.wishes import Wish
    from twinshore.store import Store

LINK = typer.Argument(help="The link, as its settings name it: `east->west`.")
TOPICS = typer.Option([], "--topic", help="An expression for topics, whole names; may be given several times.")
ADMITTED = typer.Option([], "--topics", help="Topics to mirror; may be given several times.")
EXCLUDED = typer.Option([], "--exclude", help="Topics to leave out; may be given several times.")
GROUPS = typer.Option([], "--groups", help="Consumer groups that follow; may be given several times.")
EXCLUDED_GROUPS = typer.Option([], "--exclude-groups", help="Consumer groups to leave out.")
NAMES = typer.Option([], "--name", help="Only this value, as `link list` names it.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would change.")
EVERY = typer.Option(False, "--all", help="The link's own pause and all of its topics'.")
TRIES_MAX = 5
ASK_S = 2.0


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    link = typer.Typer(help="Look at links and change them while they run.", no_args_is_help=True)
    for verb in (pause, resume, throttle, priority, reset):
        link.command(verb.__name__)(verb)
    link.command("list")(list_links)
    link.command("filter")(filter_names)
    link.command("recover")(recover)
    app.add_typer(link, name="link")


def list_links(settings: Path = SETTINGS, link: list[str] = LINKS, json_output: bool = JSON) -> None:
    """Says what holds for each link, and whether from the settings or from the store."""
    from twinshore.mirror.control.in_force import as_json, in_force
    from twinshore.mirror.control.ruling import standing

    loaded = load(settings)
    store = open_if_there(loaded)
    holds = standing(loaded.links, store) if store else {one.name: in_force(one, ()) for one in loaded.links}
    shown = []
    for one in chosen(loaded, link):
        now = holds[one.name]
        values = {name: {"value": json.loads(as_json(now.value(name))), "from": origin} for name, origin in now.origins}
        about = {"link": one.name, "naming": one.naming.value, "chain": one.chain}
        shown.append({**about, **values, "troubles": list(now.troubles)})
        if not json_output:
            typer.echo(f"{one.name} (naming {one.naming.value}{', chain' if one.chain else ''})")
            for name, origin in now.origins:
                typer.echo(f"  {name} = {as_json(now.value(name))}  from the {origin}")
            for trouble in now.troubles:
                typer.echo(f"  {trouble}")
    if store:
        store.close()
    if json_output:
        typer.echo(json.dumps(shown))


def pause(link: str = LINK, topic: list[str] = TOPICS, settings: Path = SETTINGS, dry_run: bool = DRY_RUN) -> None:
    """Carries nothing of the link, or of these topics, until resumed. Nothing is lost while the source keeps it."""
    from twinshore.mirror.control import wishes

    _change(settings, link, lambda now: wishes.pause(now, topic), dry_run=dry_run, named=topic)


def resume(
    link: str = LINK,
    topic: list[str] = TOPICS,
    every: bool = EVERY,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Ends the link's own pause, or that of these topics; `--all` ends both. Others that were paused alone stay so."""
    from twinshore.mirror.control import wishes

    if every and topic:
        raise ConfigError("--all and --topic: one or the other")
    now = _change(settings, link, lambda now: wishes.resume(now, topic, every=every), dry_run=dry_run)
    for paused in () if dry_run else now.control.paused_topics:
        typer.echo(f"{link}: still paused: topics {paused!r}; end it with --topic {paused!r}, or --all")


def throttle(
    link: str = LINK,
    bytes_s: int = typer.Argument(help="Bytes per second; 0: no bound."),
    topic: str | None = typer.Option(None, "--topic", help="Each topic that matches, instead of the whole link."),
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Bounds what a link carries, or what each topic that matches carries."""
    from twinshore.mirror.control import wishes

    named = [topic] if topic and bytes_s else []
    _change(settings, link, lambda now: wishes.throttle(now, bytes_s, topic), dry_run=dry_run, named=named)


def priority(
    link: str = LINK,
    topic: str = typer.Argument(help="An expression for topics, whole names."),
    weight: int = typer.Argument(help="1 to 100; all others have 10. 0: as all others."),
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Lets topics go before or behind others where not everything can be carried at once."""
    from twinshore.mirror.control import wishes

    named = [topic] if weight else []
    _change(settings, link, lambda now: wishes.priority(now, topic, weight), dry_run=dry_run, named=named)


def filter_names(
    link: str = LINK,
    topics: list[str] = ADMITTED,
    exclude: list[str] = EXCLUDED,
    groups: list[str] = GROUPS,
    exclude_groups: list[str] = EXCLUDED_GROUPS,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Puts other expressions in place of a link's filters; those that are not named stay."""
    from twinshore.mirror.control import wishes

    _change(settings, link, lambda _: wishes.filters(topics, exclude, groups, exclude_groups), dry_run=dry_run)


def reset(
    link: str = LINK,
    name: list[str] = NAMES,
    settings: Path = SETTINGS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Takes back what operators said: the settings hold again."""
    from twinshore.mirror.control import wishes

    _change(settings, link, lambda _: wishes.reset(name), dry_run=dry_run)


def _change(path: Path, name: str, wished: Any, *, dry_run: bool, named: Sequence[str] = ()) -> Link:
    """The link as it holds then. Of expressions in `named` that meet no topic now the operator is told."""
    from twinshore.mirror.control.in_force import in_force

    loaded = load(path)
    link = loaded.link(name)
    from twinshore.store import open_store

    store = open_if_there(loaded)
    if store is None and not dry_run:
        store = open_store(loaded.store.url, loaded.store.password)
    try:
        for _ in range(TRIES_MAX):
            if _tried(loaded, link, store, wished, dry_run=dry_run):
                now = in_force(link, store.controls(link.name) if store else ()).link
                _tell_unmet(loaded, now, store, named)
                return now
    finally:
        if store:
            store.close()
    raise ConfigError(f"link {name} is being changed by somebody else all the time", hint="look at it and try again")


def _tell_unmet(loaded: Settings, link: Link, store: Store | None, named: Sequence[str]) -> None:
    from twinshore.mirror.control.named import carries, remark

    twins = {row.topic for row in store.twins(link.name)} if store else set()
    unmet = [pattern for pattern in named if not carries(pattern, link, twins)]
    topics = _source_topics(loaded, link) if unmet else None
    for said in (remark(pattern, link, topics) for pattern in unmet):
        if said:
            typer.echo(f"{link.name}: {said}")


def _source_topics(loaded: Settings, link: Link) -> set[str] | None:
    """None where the source cannot be asked from here."""
    from twinshore.fleet import TwinshoreError
    from twinshore.kafka.cluster import KafkaCluster

    try:
        source = KafkaCluster(loaded.cluster(link.source), client_id="twinshore-link", patience_s=ASK_S, call_s=ASK_S)
        try:
            return set(source.metadata(None, refresh=True).topics)
        finally:
            source.close()
    except TwinshoreError:
        return None


def _tried(loaded: Settings, link: Link, store: Store | None, wished: Any, *, dry_run: bool) -> bool:
    """Whether it is done, or would be; False when somebody else was quicker."""
    from twinshore.mirror.control import wishes
    from twinshore.mirror.control.in_force import OF_LINK, in_force
    from twinshore.mirror.control.ruling import others_in_force
    from twinshore.mirror.topology.rules import check_links

    seen = store.control_version(link.name) if store else 0
    standing = store.controls(link.name) if store else ()
    now = in_force(link, standing)
    wish: Wish = wishes.check(wished(now), link.name)
    steps = wishes.steps(now, wish, in_force(link, ()))
    rows = _rows(link.name, wish, {step[0] for step in steps})
    kept = [row for row in standing if row.name not in rows]
    then = in_force(link, [*kept, *(row for row in rows.values() if row)])
    if {name for name, _, _ in steps} & set(OF_LINK):
        # Only filters can clash: a link is paused, whatever is wrong with them.
        check_links(others_in_force(loaded.links, store, then))
    for name, before, after in steps:
        typer.echo(f"{link.name}: {name} {'would change' if dry_run else 'changes'} from {before} to {after}")
    if not steps:
        typer.echo(f"{link.name}: nothing to change")
    if dry_run or not steps or store is None:
        return True
    told = _told(link.name, steps)
    return store.change_controls(link.name, rows, seen=seen, told=told)


def _rows(link: str, wish: Wish, names: set[str]) -> dict[str, Any]:
    from twinshore.mirror.control.in_force import as_json
    from twinshore.store import ControlRow

    now_ms, user = int(time.time() * 1000), who()
    return {
        name: None if value is None else ControlRow(link, name, as_json(value), now_ms, user)
        for name, value in wish.items()
        if name in names
    }


def _told(link: str, steps: list[tuple[str, str, str]]) -> list[Any]:
    from twinshore.store import AuditRow

    now_ms, user = int(time.time() * 1000), who()
    return [AuditRow(now_ms, link, "control", name, before, after, f"by {user}") for name, before, after in steps]
