"""docs/settings.md, written from what the sections declare. `python scripts/pages.py` puts it there."""

from __future__ import annotations

import json
from typing import Any

from twinshore.fleet.declaring import Row, rows
from twinshore.fleet.settings.edge import declared
from twinshore.fleet.settings.whole import variable

EXAMPLE = """\
[store]
url = "sqlite:///twinshore.db"

[clusters.east]
bootstrap = ["127.0.0.1:9092"]
site = "eu-1"

[clusters.west]
bootstrap = ["127.0.0.1:9192"]

[clusters.west.security]
tls = true
ca_file = "/etc/twinshore/west-ca.pem"
sasl = "SCRAM-SHA-512"
username = "twinshore"
password_env = "WEST_PASSWORD"

[links."east->west"]
topics = ["orders.*"]
exclude = ["__.*"]
topic_settings = { "min.insync.replicas" = "2" }

[mirror]
tide_s = 60

[mirror.spark]
master = "local"
spark.driver.memory = "2g"
"""

_KINDS: dict[Any, str] = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    tuple[str, ...]: "list of text",
    bool | None: "true or false",
}


def render_settings_page() -> str:
    """The whole page as Markdown."""
    overridden = [one.name for one in declared() if one.overridden]
    variables = ", ".join(f"`{variable(section, '')}<NAME>`" for section in overridden)
    parts = [
        "# Settings",
        "",
        "One TOML file. A key that is not listed here is refused, with the nearest one that is; all that is wrong is",
        "said at once, before anything is touched.",
        "",
        f"```toml\n{EXAMPLE}```",
        "",
        "**Secrets** never stand in the file: `*_env` names an environment variable, `*_file` a file. A file is read",
        "again at each new connection, so a secret in a file is changed without a restart. A process keeps the",
        "environment that it was started with: a new value of a variable counts after a restart of every process that",
        "reads it, Spark's workers included.",
        "",
        f"**The environment** overrides some sections: {variables}.",
        f"So `{variable('store', 'url')}` stands for `[store] url`. Parts of a list are parted by commas.",
        "",
        "**What needs a restart**: everything here, of each process that reads it, but for two things. Secrets,",
        "certificates and the proxy's users in files are one. The other is `[safety]`: a running mirror reads its",
        "settings file again before it deletes anything, and the stricter of both counts: `never_delete` that is set,",
        "and a lower `deletions_at_once_max`, hold at once. What is taken back there counts after a restart. While the",
        "file cannot be understood nothing is deleted. What operators say by a verb, as `twinshore link pause`, needs",
        "no restart either: see [live control](live-control.md).",
        "",
        "**The sections of links are seeds.** Which links there are stands in the store; a mirror takes these sections",
        "into it when it starts. What operators said since, as by `twinshore link set`, stays: see [links](links.md).",
        "",
        "**Paths** that are relative start where the process was started; only the file of a store in SQLite is",
        "relative to the folder of the settings file, so that it is one store wherever a process is started.",
    ]
    for place, section in [table for one in declared() for table in one.tables]:
        parts += ["", f"## `{place}`", "", (section.__doc__ or "").strip(), ""]
        parts += ["| setting | kind | default | limits | meaning |", "| --- | --- | --- | --- | --- |"]
        parts += [_line(row) for row in rows(section)]
    return "\n".join(parts) + "\n"


def _line(row: Row) -> str:
    kind = "text" if row.kind is str or isinstance(row.default, str) else _KINDS.get(row.kind, "table of text")
    default = "required" if row.required else f"`{'{}' if kind == 'table of text' else _toml(row.default)}`"
    low, high = row.rule.low, row.rule.high
    limits = "" if low is None or high is None else f"{low:,g} to {int(high):,}"
    return f"| `{row.name}` | {kind} | {default} | {limits} | {row.rule.meaning} |"


def _toml(value: object) -> str:
    if value is None:
        return "unset"
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
