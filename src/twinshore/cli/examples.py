"""An example for each verb, shown below its options; and the command as a tree that has them."""

from __future__ import annotations

import functools
from typing import Any

import typer

from twinshore.cli.entry import app, gather

EXAMPLES = {
    "advise": "advise --cluster east --topic 'orders.*'",
    "advise settings": "advise settings --loss none --duplicates none",
    "audit": "audit --last 20 --topic orders",
    "completion": "completion bash > ~/.twinshore.bash",
    "delay": "delay --link 'east->west' --topic orders",
    "delay alarms": "delay alarms --limit 10",
    "delay check": "delay check --link 'east->west' --item lag",
    "delay forget": "delay forget monitor-1",
    "delay simulate": "delay simulate --hours 1 --runs 5",
    "delay watch": "delay watch --settings twinshore.toml",
    "delay watch-watchers": "delay watch-watchers --settings twinshore.toml",
    "demo": "demo --seconds 5 --keep",
    "groups": "groups --group 'billing.*' --partitions",
    "groups move": "groups move billing --dry-run",
    "groups translate": "groups translate 81204 --topic orders --partition 3",
    "incidents": "incidents --link 'east->west' --kind 'retention gap'",
    "lab down": "lab down --clusters north",
    "lab fill": "lab fill --topic orders --records 10000",
    "lab start": "lab start east",
    "lab status": "lab status --json",
    "lab stop": "lab stop east",
    "lab up": "lab up --clusters north,south > twinshore.toml",
    "link add": "link add 'east->west' 'topics=[\"orders.*\"]' --dry-run",
    "link filter": "link filter 'east->west' --topics 'orders.*' --exclude '.*-test'",
    "link home": "link home orders east --dry-run",
    "link homes": "link homes --link 'east->west'",
    "link list": "link list",
    "link pause": "link pause 'east->west' --topic 'clicks.*'",
    "link priority": "link priority 'east->west' 'payments.*' 50",
    "link recover": "link recover 'east->west' --dry-run",
    "link remove": "link remove 'east->west' --dry-run",
    "link reset": "link reset 'east->west' --dry-run",
    "link resume": "link resume 'east->west' --all",
    "link set": "link set 'east->west' 'chain=true' --dry-run",
    "link throttle": "link throttle 'east->west' 50000000",
    "link turn": "link turn 'east->west' --dry-run",
    "migrate mm2": "migrate mm2 mm2.properties --output twinshore.toml",
    "mirror begin-again": "mirror begin-again orders --dry-run",
    "mirror delete": "mirror delete orders --link 'east->west' --dry-run",
    "mirror extents": "mirror extents orders --partition 3 --source-offset 81204",
    "mirror forget": "mirror forget orders --dry-run",
    "mirror keep": "mirror keep orders",
    "mirror plan": "mirror plan --link 'east->west'",
    "mirror rebuild": "mirror rebuild 'east->west' orders --dry-run",
    "mirror resume": "mirror resume orders --partition 3",
    "mirror run": "mirror run --settings twinshore.toml",
    "prove": "prove --topic orders --here",
    "proxy conduct": "proxy conduct --last 1d --html conduct.html",
    "proxy fuse close": "proxy fuse close orders --dry-run",
    "proxy fuse drops": "proxy fuse drops",
    "proxy fuse limit": "proxy fuse limit orders --produce --records-s 50000 --reason 'runs away' --dry-run",
    "proxy fuse list": "proxy fuse list",
    "proxy fuse open": "proxy fuse open orders --client app-7 --for 10m --reason 'runs away' --dry-run",
    "proxy list": "proxy list",
    "proxy groups": "proxy groups --to west --dry-run",
    "proxy offsets": "proxy offsets billing --topic orders --to-time 2026-11-26T10:00:00Z --dry-run",
    "proxy plan": "proxy plan orders",
    "proxy run": "proxy run --settings twinshore.toml",
    "proxy traffic": "proxy traffic --by client --sort requests --last 1h",
    "proxy user": "proxy user orders --password-file orders.password",
    "push list": "push list",
    "push remove": "push remove shop --dry-run",
    "push revoke": "push revoke 1f0c6b7a --dry-run",
    "push serve": "push serve --settings twinshore.toml",
    "push set": "push set shop shop.json --dry-run",
    "push show": "push show shop",
    "push token": "push token shop",
    "push tokens": "push tokens",
    "simulate explore": "simulate explore --min-insync 2 --records 1",
    "simulate story": "simulate story min-insync-1",
    "simulate topic": "simulate topic orders --cluster east --acks 1",
    "spool drop": "spool drop spool --topic orders",
    "spool send": "spool send spool --topic orders --dry-run",
    "spool show": "spool show spool",
    "status": "status --watch --topics",
    "switch drill": "switch drill 'orders.*' --to west",
    "switch failback": "switch failback 'orders.*' --old east --dry-run",
    "switch free": "switch free --dry-run",
    "switch history": "switch history --json",
    "switch plan": "switch plan 'orders.*' --to west --force",
    "switch rescue export": "switch rescue export",
    "switch rescue list": "switch rescue list",
    "switch rescue reinject": "switch rescue reinject rescued/1f2e3d4c-orders-0-81-97.jsonl --to orders --dry-run",
    "switch rescue show": "switch rescue show rescued/1f2e3d4c-orders-0-81-97.jsonl",
    "switch resume": "switch resume",
    "switch rollback": "switch rollback",
    "switch run": "switch run 'orders.*' --to west",
    "switch status": "switch status",
    "topology": "topology --json",
}


@functools.cache
def command() -> Any:
    """The command with all its verbs, each with its example."""
    gather()
    whole = typer.main.get_command(app)
    _tell(whole, ())
    return whole


# Any, because the library that Typer stands on has become a private part of it and gives no public type.
def _tell(verb: Any, words: tuple[str, ...]) -> None:
    example = EXAMPLES.get(" ".join(words))
    if example:
        verb.epilog = f"Example: twinshore {example}"
    for name, inner in getattr(verb, "commands", {}).items():
        _tell(inner, (*words, name))
