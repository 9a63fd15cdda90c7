"""Groups of the proxies' clients go along with a switch: their members gather before it, and go on right behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from twinshore.fleet.operations import Plan
from twinshore.fleet.settings import Settings
from twinshore.proxy.operations.groups_home import Asked, GroupsStep, act, plan
from twinshore.store import Store


def planned(to: str, settings: Settings, store: Store) -> Plan[GroupsStep]:
    """`refused`: why groups cannot go along."""
    return plan(Asked(to), settings, store)


@contextmanager
def gathered(
    meant: Plan[GroupsStep], to: str, settings: Settings, store: Store, by: str, tell: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Members have committed, and wait. What is given is called behind the switch, and moves them; else they stay."""
    with closing(act(Asked(to), meant, settings, store, by)) as steps:
        if (first := next(steps, None)) is not None:
            tell(first.sentence(done=True))

        def go_on() -> None:
            for step in steps:
                tell(step.sentence(done=True))

        yield go_on


def by_force(to: str, settings: Settings, where: object, by: str, tell: Callable[[str], None]) -> None:
    """Behind a switch by force, also where the groups' home does not answer. `where`: the store, if it answers."""
    store = where if isinstance(where, Store) else None
    asked = Asked(to, force=True)
    meant = plan(asked, settings, store)
    if meant.refused:
        asked = Asked(to)
        meant = plan(asked, settings, store)
    if meant.refused:
        raise meant.refused
    for step in act(asked, meant, settings, store, by):
        tell(step.sentence(done=True))
