"""`twinshore mirror keep` and `twinshore mirror delete`: an operator's no, and an operator's yes, to a deletion."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.looking import LINKS, SETTINGS, load, who
from twinshore.fleet import ConfigError, RefusedError
from twinshore.fleet.settings_edge import did_you_mean

if TYPE_CHECKING:
    from twinshore.store import Store

TOPIC = typer.Argument("", help="The topic, as the source names it.")
EVERY = typer.Option(False, "--all", help="All topics of the link, those to come included.")
UNDO = typer.Option(False, "--undo", help="Take it back: policies hold again, each deletion after its whole delay.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be agreed to.")


def keep(
    topic: str = TOPIC, settings: Path = SETTINGS, link: list[str] = LINKS, every: bool = EVERY, undo: bool = UNDO
) -> None:
    """Forbids that a topic's twin is deleted, by any policy or agreement, until it is taken back with --undo.

    A running mirror obeys at once: it asks right before each deletion.
    """
    from twinshore.mirror.follow.last_resort import EVERY_TOPIC, kept_in_words
    from twinshore.mirror.follow.lifecycle import KEEP
    from twinshore.store import AuditRow, Followed
    from twinshore.store.opening import open_known

    if bool(topic) is every:
        raise ConfigError("name a topic, or give --all", hint="one or the other")
    loaded = load(settings)
    if undo:
        loaded.only(link)
    with open_known(loaded) as store:
        names = [one.name for one in loaded.chosen(link)]
        ours = names if every else [name for name in names if topic in _known(store, name)]
        if not ours:
            near = did_you_mean(topic, sorted(set().union(*(_known(store, name) for name in names))))
            raise ConfigError(f"no link has a twin of topic {topic}", hint=near.removeprefix("; ") or "no link has any")
        for name in ours:
            now_ms = int(time.time() * 1000)
            row = Followed(name, KEEP, topic or EVERY_TOPIC, "", "kept", now_ms)
            said = "a word that keeps was taken back" if undo else "kept: nothing deletes it, or them"
            told = AuditRow(now_ms, name, "topic", topic or "all topics", "", said, f"by {who()}")
            (store.forget if undo else store.remember)([row], [told])
            typer.echo(f"{name}: {kept_in_words(topic, frozenset(one.subject for one in store.followed(name, KEEP)))}")


def delete(
    topic: str = typer.Argument(help="The topic, deleted on the source, whose twin waits for an operator's word."),
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    dry_run: bool = DRY_RUN,
) -> None:
    """Agrees to a deletion that a policy would do, and that waits because too many would go at once.

    The running mirror deletes the twin within seconds, where nothing else speaks against it at that moment. With
    several links in the settings, --link says whose twin it is.
    """
    from twinshore.fleet import Deleted
    from twinshore.mirror.follow.acts import State
    from twinshore.mirror.follow.last_resort import Word, unsafe
    from twinshore.mirror.follow.lifecycle import ALLOWED
    from twinshore.mirror.follow.memories import memories_of
    from twinshore.mirror.follow.words import show
    from twinshore.store import AuditRow, Followed
    from twinshore.store.opening import open_known

    loaded = load(settings)
    one = loaded.only(link)
    with open_known(loaded) as store:
        memories = memories_of(store.followed(one.name))
        waiting = sorted(
            name for name, memory in memories.items() if memory.state is State.ASKED and not memory.source_id
        )
        if topic not in waiting:
            hint = did_you_mean(topic, waiting).removeprefix("; ") or "`twinshore status` shows what is open"
            raise ConfigError(f"no deletion of the twin of {topic} waits for a word", hint=hint)
        shown = show(one, loaded, store, topic)
        for line in shown.lines():
            typer.echo(f"{one.name}: {line}")
        not_by_policy = "" if one.follow.deleted is Deleted.DELETE else f"deleted = {one.follow.deleted.value!r} now"
        why = shown.against or not_by_policy or unsafe(topic, shown.spans)
        if why:
            raise RefusedError(
                f"the twin of {topic} is not deleted: {why}", hint="docs/deletes.md says what forbids it"
            )
        if not dry_run:
            now_ms = int(time.time() * 1000)
            told = AuditRow(now_ms, one.name, "topic", topic, "", "its twin may be deleted", f"by {who()}")
            store.remember([Followed(one.name, ALLOWED, topic, Word(now_ms).to_json(), "agreed", now_ms)], [told])
        word = "would delete" if dry_run else "deletes"
        typer.echo(f"{one.name}: the running mirror {word} the twin of {topic} within seconds")


def _known(store: Store, link: str) -> set[str]:
    return {row.topic for row in store.twins(link)}
