"""`twinshore mirror examine`: was anything spoilt that nobody saw, as by an older version?"""

from __future__ import annotations

import json
from pathlib import Path

import typer

from twinshore.cli.looking import JSON, LINKS, SETTINGS, load
from twinshore.cli.prove import HERE, THROTTLE, TOPICS, log
from twinshore.service.signals import heard


def examine(
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    topic: list[str] = TOPICS,
    here: bool = HERE,
    throttle: float = THROTTLE,
    json_output: bool = JSON,
) -> None:
    """Looks through everything that links carry for faults that an older version did not see, and says what to do
    about each.

    It looks for records of another history, as after an unclean election on the source; for twins that lost their
    beginning; and for deleted keys that live on in compacted twins. It reads both sides whole, while traffic flows,
    and changes nothing. Exit code 0: nothing found; 1: something found; 2: nothing found, but not everything could be
    read or is on the twin, or there was nothing to read; 130 or 143: stopped by Ctrl-C or SIGTERM.
    """
    with heard() as asked:
        from twinshore.proof.operations.examine import Examine
        from twinshore.proof.operations.examine import examine as examined_by
        from twinshore.proof.runner import runner
        from twinshore.proof.traces import as_values, in_words
        from twinshore.store.opening import open_known

        loaded = load(settings)
        with open_known(loaded) as store, runner(loaded, here=here, stop=asked.stop, log=log) as run:
            if run is None:
                raise typer.Exit(asked.exit_code)
            wanted = Examine(link, topic, throttle)
            examined = examined_by(wanted, loaded, store, run, stopped=asked.stop.is_set)
        if json_output:
            typer.echo(json.dumps(as_values(examined)))
        else:
            for line in in_words(examined):
                typer.echo(line)
        raise typer.Exit(asked.exit_code if asked.stop.is_set() else examined.exit_code)
