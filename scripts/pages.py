"""Writes what is drawn from the code: docs/cli.md from the command, other pages and drawings from their tables.

`python scripts/pages.py` writes them; `--check` only says which ones are out of date, and which links lead nowhere.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the bench is no installed package

from bench.kit import pictures, reckoned
from bench.kit.page import PAGE
from twinshore.advisor.core.client_rules import CLIENT_RULES
from twinshore.advisor.core.model import SHARED_LIMITS, RuleLimit
from twinshore.advisor.operations.advice_on_cluster import RULES
from twinshore.cli.app import EXIT_CODES, build_command
from twinshore.config.declaration import SettingRow, setting_rows
from twinshore.config.errors import messages
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.schema import all_sections
from twinshore.config.sections.delay import DelaySettings
from twinshore.config.settings import environment_variable
from twinshore.monitoring.delay_simulation import build_table
from twinshore.replication.metrics import METRICS
from twinshore.replication.task.core.partition import TRANSITIONS, Phase
from twinshore.server.core.catalogue import LEFT_OUT
from twinshore.server.verbs import operations
from twinshore.switch.core.steps import NEVER_HOLDS, STEPS, SwitchKind, SwitchStep

ROOT = Path(__file__).resolve().parent.parent
PHASES_BEGIN, PHASES_END = "<!-- phases -->\n", "<!-- end of phases -->\n"
STEPS_BEGIN, STEPS_END = "<!-- steps -->\n", "<!-- end of steps -->\n"
REBUILD_BEGIN, REBUILD_END = "<!-- steps of a rebuild -->\n", "<!-- end of steps of a rebuild -->\n"
KINDS_BEGIN, KINDS_END = "<!-- kinds -->\n", "<!-- end of kinds -->\n"
GROUP_BEGIN, GROUP_END = "<!-- steps of a group -->\n", "<!-- end of steps of a group -->\n"
RULES_BEGIN, RULES_END = "<!-- rules -->\n", "<!-- end of rules -->\n"
SIMULATED_BEGIN, SIMULATED_END = "<!-- simulated -->\n", "<!-- end -->"
FAILBACK_BEGIN, FAILBACK_END = "<!-- steps of a fail-back -->\n", "<!-- end of steps of a fail-back -->\n"
CLI_HEAD = """\
# The command

Written from the command itself by `make docs`. An error that Twinshore raises on purpose is one sentence with its
[code](errors.md), and a line with the remedy if there is one. With `--json` it is one JSON object on stderr, with
`error`, `hint`, `code` and `values`. Every verb prints this with `--help`, and an example.

## Exit codes

"""
ERRORS_HEAD = """\
# Errors

Written from the code by `make docs`. An error that an operator meets has a code, values and mostly a remedy. The
command prints `error: TEXT [CODE]` and `  try: REMEDY`; with `--json` it prints one JSON object on stderr, with
`error`, `hint`, `code` and `values`. Programs compare codes: a code keeps its meaning, and texts may change. Below,
`{name}` is a value. Errors of a cluster have Kafka's own codes instead. [Troubleshooting](troubleshooting.md) goes by
symptom.
"""
METRICS_HEAD = """\
# Metrics

Written from the table of the code by `make docs`. With `metrics_port` in `[mirror]`, the mirror serves `/metrics` for
Prometheus, and `/health` for tools that restart processes. `/health` has each link's state as JSON. It answers 200
while the mirror's loop runs, and 503 after the loop stood still for half a minute, or for a minute after a thread ended
unexpectedly. A link that waits for a cluster is healthy, because a restart would not help. Set `metrics_address` if
another machine reads the metrics; the default is `127.0.0.1`.

`deploy/prometheus/alerts.yml` has alert rules, `deploy/grafana/twinshore.json` a dashboard.

**Recovery point.** The age of the oldest offset that the twin lacks, since the mirror first saw it on the source. It
does not use timestamps of records, so a backfill of old records does not raise it. The mirror reads the source's log
ends every `ends_s` seconds, so the recovery point also grows for topics that are paused, throttled, stopped or refused
by the target. It survives a restart: the store keeps since when the oldest partitions are behind, and records that
arrived while no mirror ran count from the last report.

**Unknown values are absent, never frozen.** A lag counts only log ends that were read within the last two polls. While
the source does not answer, lag has no series: `twinshore_link_source_age_seconds` says for how long, and
`twinshore_link_unknown_lag_partitions` for how many partitions. A recovery point stays, and grows, while something is
known to be lacking; it is absent if nothing was lacking when the source was last read. Only the process that replicates
a link serves both for it, so use `max by (link)`. Rates and latencies are absent while no mirror reports, and the
link's state is then `unknown`. So an alert on lag or recovery point does not fire while the source is away:
`TwinshoreSourceUnknown` and `TwinshoreLinkWaits` do.

**How many series.** Topics and partitions have their own series up to `metrics_topics_max` and
`metrics_partitions_max`, in the order in which they were first seen. All count in their link's.
"""
SETTINGS_EXAMPLE = """\
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
task_run_s = 60

[mirror.spark]
master = "local"
spark.driver.memory = "2g"
"""

SETTING_KINDS: dict[Any, str] = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    tuple[str, ...]: "list of text",
}
SETTING_KINDS[bool | None] = SETTING_KINDS[bool]


def pages() -> dict[Path, str]:
    """Each generated page: where it stands, and what the code says it should hold."""
    return {path: write() for path, write in writers().items()}


def writers() -> dict[Path, Callable[[], str]]:
    """Where each generated page stands, and what says what it should hold: some of them take seconds."""
    bench = PAGE.read_text()
    crossing, stored = _read("docs/evidence/crossing.md"), _read("docs/evidence/store.md")
    drawn = pictures.drawings(bench, pictures.RECORDED_DEMO.read_text())
    return {
        **{path: partial(str, text) for path, text in drawn.items()},
        ROOT / "README.md": lambda: pictures.with_figures(_read("README.md"), bench),
        ROOT / "ARCHITECTURE.md": lambda: with_phases(_read("ARCHITECTURE.md")),
        ROOT / "docs" / "advisor.md": lambda: with_rules(_read("docs/advisor.md")),
        ROOT / "docs" / "capacity.md": lambda: reckoned.capacity(
            _read("docs/capacity.md"), bench, crossing, _read("ARCHITECTURE.md"), stored
        ),
        ROOT / "docs" / "any-log.md": lambda: reckoned.any_log(
            _read("docs/any-log.md"), _read("docs/evidence/topics.md")
        ),
        ROOT / "docs" / "cli.md": render_cli_page,
        ROOT / "docs" / "client-audit.md": lambda: with_client_rules(_read("docs/client-audit.md")),
        ROOT / "docs" / "delay.md": lambda: with_simulated_delays(_read("docs/delay.md")),
        ROOT / "docs" / "errors.md": render_errors_page,
        ROOT / "docs" / "incidents.md": lambda: with_kinds(_read("docs/incidents.md")),
        ROOT / "docs" / "metrics.md": render_metrics_page,
        ROOT / "docs" / "operations.md": lambda: reckoned.operations(
            _read("docs/operations.md"), crossing, _read("ARCHITECTURE.md"), stored
        ),
        ROOT / "docs" / "production.md": lambda: reckoned.production(_read("docs/production.md"), bench),
        ROOT / "docs" / "settings.md": render_settings_page,
        ROOT / "docs" / "switch.md": lambda: with_steps(_read("docs/switch.md")),
        ROOT / "docs" / "versions.md": lambda: reckoned.versions(
            _read("docs/versions.md"), _read("requirements.lock"), tomllib.loads(_read("pyproject.toml")), bench
        ),
    }


def _read(name: str) -> str:
    return (ROOT / name).read_text()


def with_phases(page: str) -> str:
    """The page with the drawing of a partition's phases as their table has it now."""
    head, _, rest = page.partition(PHASES_BEGIN)
    _, _, tail = rest.partition(PHASES_END)
    moves = [f"    {before} --> {after}: {when}" for before, after, when in TRANSITIONS if after is not Phase.STOPPED]
    drawn = "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {Phase.UNVERIFIED}", *moves, "```"])
    stops = ", ".join(sorted({when for _, after, when in TRANSITIONS if after is Phase.STOPPED}))
    said = f"From each of them to `{Phase.STOPPED}`: {stops}."
    return f"{head}{PHASES_BEGIN}\n{drawn}\n\n{said}\n\n{PHASES_END}{tail}"


def with_simulated_delays(page: str) -> str:
    """The page with the table as the code makes it now."""
    head, _, rest = page.partition(SIMULATED_BEGIN)
    return f"{head}{SIMULATED_BEGIN}{_simulated_delays()}\n{SIMULATED_END}{rest.partition(SIMULATED_END)[2]}"


@cache
def _simulated_delays() -> str:
    return build_table(1, 3.0, 10, DelaySettings())


def with_rules(page: str) -> str:
    shared = "\n".join(f"- `{limit.name}` = {limit.default:g}: {limit.says}" for limit in SHARED_LIMITS)
    rows = (
        (_code(rule.name), rule.severity, rule.says, rule.risk, rule.event, _limits(rule.limits), _code(rule.story))
        for rule in RULES
    )
    names = ("rule", "severity", "it is found where", "at risk", "when", "limits", "story")
    return _with_rules(page, f"In `[limits]`, for all rules:\n\n{shared}\n\n{_table(names, rows)}")


def with_client_rules(page: str) -> str:
    rows = (
        (_code(rule.name), rule.severity, rule.says, rule.costs, "; ".join(rule.settings), _limits(rule.limits))
        for rule in CLIENT_RULES
    )
    return _with_rules(page, _table(("rule", "severity", "it is found where", "it costs", "settings", "limits"), rows))


def _with_rules(page: str, told: str) -> str:
    head, _, rest = page.partition(RULES_BEGIN)
    return f"{head}{RULES_BEGIN}\n{told}\n\n{RULES_END}{rest.partition(RULES_END)[2]}"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(names), " | ".join(["---"] * len(names)), *map(" | ".join, rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _code(name: str) -> str:
    return name and f"`{name}`"


def _limits(limits: Iterable[RuleLimit]) -> str:
    return "; ".join(f"`{limit.name}` = {limit.default:g}: {limit.says}" for limit in limits)


def with_kinds(page: str) -> str:
    """The page of incidents with the table of their kinds as the code has them."""
    head, _, rest = page.partition(KINDS_BEGIN)
    _, _, tail = rest.partition(KINDS_END)
    rows = ["| incident | afterwards | what the incident log says was done |", "| --- | --- | --- |"]
    rows += [
        f"| [{kind.value}](#{kind.value.replace(' ', '-')}) | {kind.after.value} | {kind.policy.words} |"
        for kind in IncidentKind
    ]
    said = "\n".join(rows)
    return f"{head}{KINDS_BEGIN}\n{said}\n\n{KINDS_END}{tail}"


def with_steps(page: str) -> str:
    """The page with the drawings and the tables of steps as the code has them."""
    page = _with_steps(page, SwitchKind.PLANNED, STEPS_BEGIN, STEPS_END)
    page = _with_steps(page, SwitchKind.GROUP, GROUP_BEGIN, GROUP_END)
    page = _with_steps(page, SwitchKind.FAILBACK, FAILBACK_BEGIN, FAILBACK_END)
    return _with_steps(page, SwitchKind.REBUILD, REBUILD_BEGIN, REBUILD_END)


def _with_steps(page: str, kind: SwitchKind, begin: str, end: str) -> str:
    head, _, rest = page.partition(begin)
    _, _, tail = rest.partition(end)
    planned = STEPS[kind]
    at = planned.index(SwitchStep.COMMIT)
    drawn = [
        "```mermaid",
        "flowchart LR",
        f"    subgraph turns [it can turn back]\n    {' --> '.join(map(_node, planned[: at + 1]))}\n    end",
        f"    subgraph goes [it goes on]\n    {' --> '.join(map(_node, planned[at + 1 :]))}\n    end",
        f"    {_node(planned[at])} --> {_node(planned[at + 1])}",
        "```",
    ]
    rows = ["| step | what it does | turning back | writers wait |", "| --- | --- | --- | --- |"]
    rows += [
        f"| `{step.words}` | {step.spec.does} | {step.spec.undoes} |"
        f" {'yes' if step.spec.held and kind not in NEVER_HOLDS else ''} |"
        for step in planned
    ]
    said = "\n".join(drawn), "\n".join(rows)
    return f"{head}{begin}\n{said[0]}\n\n{said[1]}\n\n{end}{tail}"


def _node(step: SwitchStep) -> str:
    return f"{step.name.lower()}[{step.words}]"


def render_errors_page() -> str:
    """docs/errors.md: each code with its text and remedy, by package."""
    lines = [ERRORS_HEAD]
    for package, codes in groupby(sorted(messages()), key=lambda code: code.partition(".")[0]):
        lines += [f"## {package}", "", "```text"]
        for code in codes:
            text, hint = (re.sub(r"{(\w+)[^}]*}", r"{\1}", said) for said in messages()[code])
            lines += [code, *(f"    {line}" for line in text.split("\n")), *([f"    try: {hint}"] if hint else [])]
        lines += ["```", ""]
    return "\n".join(lines)


def render_metrics_page() -> str:
    rows = [
        f"| `{metric.served}` | {metric.kind.value} | {', '.join(metric.labels) or 'none'} | {metric.help} |"
        for metric in METRICS.values()
    ]
    return "\n".join([METRICS_HEAD, "| metric | kind | labels | means |\n| --- | --- | --- | --- |", *rows]) + "\n"


def render_settings_page() -> str:
    overridden = [one.name for one in all_sections() if one.overridden]
    tables = ", ".join(f"`{one.name}.{table}`" for one in all_sections() for table in one.live_tables)
    variables = ", ".join(f"`{environment_variable(section, '')}<NAME>`" for section in overridden)
    parts = [
        "# Settings",
        "",
        "One TOML file. A key that is not listed here is refused, with the nearest one that is; all that is wrong is",
        "said at once, before anything is touched.",
        "",
        f"```toml\n{SETTINGS_EXAMPLE}```",
        "",
        "**Secrets** never stand in the file: `*_env` names an environment variable, `*_file` a file. A file is read",
        "again at each new connection, so a secret in a file is changed without a restart. A process keeps the",
        "environment that it was started with: a new value of a variable counts after a restart of every process that",
        "reads it, Spark's workers included.",
        "",
        f"**The environment** overrides some sections: {variables}.",
        f"So `{environment_variable('store', 'url')}` stands for `[store] url`. Parts of a list are parted by commas.",
        "",
        "**Live settings** are marked so. `twinshore settings set KEY VALUE` puts a value into the store, which counts",
        "before this file, and running proxies and monitors go by it. `twinshore settings show` says what is in force,",
        f"and where it is from. Live are also the tables {tables}.",
        "A value that does not fit a process's own file is set aside there, with a line in its log.",
        "",
        "**What needs a restart**: everything else here, of each process that reads it, but for two things. Secrets,",
        "certificates and the proxy's users in files are one. The other is `[safety]`: a running mirror reads its",
        "settings file again before it deletes anything, and the stricter of both counts: `never_delete` that is set,",
        "and a lower `deletions_at_once_max`, hold at once. What is taken back there counts after a restart. While the",
        "file cannot be understood nothing is deleted. What operators say by a verb, as `twinshore link pause`, needs",
        "no restart either: see [live control](live-control.md).",
        "",
        "**The sections of links are seeds.** Which links there are stands in the store; a mirror takes these sections",
        "into it when it starts. What operators said since, as by `twinshore link set`, stays: see [links](links.md).",
        "So are those of [protection](protection.md#levels-in-the-settings): topics that have no level get theirs.",
        "",
        "**Paths** that are relative start where the process was started; only the file of a store in SQLite is",
        "relative to the folder of the settings file, so that it is one store wherever a process is started.",
    ]
    for place, section in [table for one in all_sections() for table in one.tables]:
        parts += ["", f"## `{place}`", "", (section.__doc__ or "").strip(), ""]
        parts += ["| setting | kind | default | limits | meaning |", "| --- | --- | --- | --- | --- |"]
        parts += [_setting_row(row) for row in setting_rows(section)]
    return "\n".join(parts) + "\n"


def _setting_row(row: SettingRow) -> str:
    kind = "text" if row.kind is str or isinstance(row.default, str) else SETTING_KINDS.get(row.kind, "table of text")
    default = "required" if row.required else f"`{'{}' if kind == 'table of text' else _toml(row.default)}`"
    low, high = row.rule.low, row.rule.high
    limits = "" if low is None or high is None else f"{low:,g} to {int(high):,}"
    live = "**Live.** " if row.rule.live else ""
    return f"| `{row.name}` | {kind} | {default} | {limits} | {live}{row.rule.meaning} |"


def _toml(value: object) -> str:
    if value is None:
        return "unset"
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def render_cli_page() -> str:
    """The whole page as Markdown."""
    rows = ["| code | means |", "| ---: | --- |", *(f"| {code} | {says} |" for code, says in EXIT_CODES.items())]
    head = [CLI_HEAD + "\n".join(rows), "", *_operations()]
    return "\n".join([*head, *_verb("twinshore", build_command())]).rstrip() + "\n"


def _operations() -> Iterator[str]:
    """The roles and effects of all operations, and the verbs that are left out."""
    yield "## Who may ask a platform\n\nThese verbs also take `--server`.\n"
    yield "| verb | | role | effect |\n| --- | --- | --- | --- |"
    yield from (
        f"| `{name}` | {one.rule.title} | {one.rule.role} | {one.rule.effect} |" for name, one in operations().items()
    )
    yield "\nVerbs that a platform does not take:\n"
    for why in dict.fromkeys(LEFT_OUT.values()):
        yield f"- {', '.join(f'`{name}`' for name, reason in LEFT_OUT.items() if reason == why)}: {why}"
    yield ""


@cache
def verbs() -> set[str]:
    """Each verb that can be run, as in 'lab up'; groups too, as in 'lab'."""
    return {name.removeprefix("twinshore ") for name, _ in _walk("twinshore", build_command())}


@cache
def options() -> set[str]:
    """Each option of any verb."""
    return {
        word
        for _, verb in _walk("twinshore", build_command())
        for parameter in verb.params
        for word in (*parameter.opts, *parameter.secondary_opts)
        if word.startswith("--")
    } | {"--help"}


# Any, because the library that Typer stands on has become a private part of it and gives no public type.
def _walk(name: str, verb: Any) -> Iterator[tuple[str, Any]]:
    yield name, verb
    for word, inner in sorted(getattr(verb, "commands", {}).items()):
        if not inner.hidden:
            yield from _walk(f"{name} {word}", inner)


def _verb(name: str, verb: Any) -> Iterator[str]:
    for full_name, inner in _walk(name, verb):
        yield f"## `{full_name}`\n"
        yield f"{_prose(inner.help or '')}\n"
        if full_name != name and inner.epilog:
            yield f"```sh\n{inner.epilog.removeprefix('Example: ')}\n```\n"
        rows = [_row(parameter) for parameter in inner.params if not _is_hidden(parameter)]
        if rows:
            yield "| argument or option | default | meaning |\n| --- | --- | --- |"
            yield "\n".join(rows) + "\n"


def _is_hidden(parameter: Any) -> bool:
    return bool(getattr(parameter, "hidden", False)) or not parameter.expose_value


def _row(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    words = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]
    names = ", ".join(f"`{word}`" for word in words)
    return f"| {names} | {_default(parameter)} | {_prose(parameter.help or '')} |"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default() if callable(parameter.default) else parameter.default
    if default is None or default == "" or default == [] or default == ():
        return ""
    if isinstance(default, bool):
        return "on" if default else "off"
    return f"`{getattr(default, 'value', default)}`"


def _prose(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text.replace("\f", "").strip()).replace("|", "\\|")


def broken_links(page: Path) -> list[str]:
    """Links to files or headings that are not there."""
    broken = []
    for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text("utf-8")):
        target = page.parent / link if link else page
        lost = "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target)))
        broken += [f"{link}#{anchor}" if anchor else link] if lost else []
    return broken


@cache
def anchors(page: Path) -> set[str]:
    """What headings of the page are called in links."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads}


def main(arguments: list[str]) -> int:
    """Exit code 1 when `--check` finds a page out of date, or a link that leads nowhere."""
    if "--check" in arguments:
        written = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        lost = [f"{path.relative_to(ROOT)} links to {link}" for path in written for link in broken_links(path)]
        print(*lost, sep="\n", end="\n" if lost else "", file=sys.stderr)
        if lost:
            return 1
    stale = [path for path, text in pages().items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} is not what the code says; run make docs", file=sys.stderr)
        else:
            path.write_text(pages()[path])
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
