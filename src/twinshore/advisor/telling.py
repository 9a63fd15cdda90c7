"""An advice told: in sentences for a terminal, and as one page of HTML that needs nothing else: no script, no font, no
address. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape

from twinshore.advisor.advice import Advice, Difference
from twinshore.advisor.profiles import Kind, Profile
from twinshore.advisor.rule import WEIGHTS, Finding, Weight
from twinshore.fleet.html_page import html_page
from twinshore.fleet.sentences import counted, followed, listed
from twinshore.loss.page import ended
from twinshore.loss.stories import STORIES, Story, play
from twinshore.loss.telling import described, picture, sentence

LINES = 10


def sentences_of(advice: Advice, *, everything: bool = False) -> Iterator[str]:
    """The verdict first, then what each rule found, by weight. Of findings that are alike ten are shown, unless
    `everything` is wanted."""
    yield verdict(advice)
    most = len(advice.findings) if everything else LINES
    for kind in dict.fromkeys((one.rule, one.weight) for one in advice.findings):
        yield ""
        yield from _of_rule([one for one in advice.findings if (one.rule, one.weight) == kind], most)
    yield from _beside(advice, most)


def verdict(advice: Advice) -> str:
    """All of it in a line."""
    return (
        f"{advice.cluster}: {counts([one.weight for one in advice.findings], len(advice.waived), len(advice.unseen))}"
    )


def counts(weights: Sequence[Weight], waived: int, unseen: int) -> str:
    """How many were found of each weight, passed over, and could not be seen."""
    by_weight = ", ".join(f"{count} {weight}" for weight in WEIGHTS if (count := weights.count(weight)))
    found = f"{counted(len(weights), 'finding')}: {by_weight}" if weights else "nothing was found"
    passed = f"; {waived} waived" if waived else ""
    return found + passed + (f"; {counted(unseen, 'thing')} could not be seen" if unseen else "")


def _of_rule(findings: list[Finding], most: int) -> Iterator[str]:
    first = findings[0]
    yield f"{first.weight.upper()} {first.rule}: {first.says}"
    yield f"  at risk: {first.risk}"
    yield f"  when: {first.event}"
    if first.story:
        yield f"  to see it happen: twinshore simulate story {first.story}"
    for one in findings[:most]:
        yield f"  {one.subject}: {one.evidence}"
        for line in one.commands:
            yield f"      {line}"
        if one.by_hand:
            yield f"      by hand: {one.by_hand}"
        if one.safe:
            yield "      --fix does it"
    if len(findings) > most:
        yield f"  and {len(findings) - most:,} more: --all shows them, --json has them"


def _beside(advice: Advice, most: int) -> Iterator[str]:
    if advice.profiles:
        yield ""
        yield "what topics promise (CP for producers with acks=all, AP with acks=1):"
        for kind in Kind:
            topics = [one.topic for one in advice.profiles if one.kind is kind]
            if topics:
                yield f"  {kind}: {listed(topics, most)}"
        odd = [one for one in advice.profiles if one.kind is Kind.NEITHER]
        yield from (f"    {one.topic}: {'; '.join(one.differs)}" for one in odd[:most])
    for row in advice.waived:
        yield f"waived until {row.waiver.until}: {row.finding.rule}, {row.finding.subject}: {row.waiver.reason}"
    for one in advice.unseen[:most]:
        yield f"could not see {one.what}: {one.why}" + (f" (try: {one.hint})" if one.hint else "")
    if len(advice.unseen) > most:
        yield f"and {len(advice.unseen) - most:,} more things could not be seen"
    for one in advice.untold:
        yield f"unknown: {one.what}: {one.why} ({one.hint})"
    yield from advice.remarks


def difference_in_words(found: Difference, now_ms: int) -> Iterable[str]:
    """What is new and what is gone since then."""
    hours = (now_ms - found.since_ms) / 3_600_000
    beside = f"; {found.beside} are of rules or topics that were not looked at now" if found.beside else ""
    yield f"since {hours:.1f} h ago: {len(found.new)} new, {len(found.gone)} gone, {found.stays} as before{beside}"
    yield from (f"  new: {one.rule}, {one.subject}: {one.evidence}" for one in found.new)
    unsure = " (or could not be seen this time)" if found.unsure else ""
    yield from (f"  gone{unsure}: {one.rule}, {one.subject}: {one.evidence}" for one in found.gone)


STYLE = """\
:root{color-scheme:light dark;--grave:#b3261e;--warning:#9a6700;--note:#57606a;--line:#8884}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
article{border-left:.3rem solid var(--note);padding:.1rem 1rem;margin:1.2rem 0}
article.grave{border-color:var(--grave)}article.warning{border-color:var(--warning)}
pre{overflow-x:auto;white-space:pre-wrap;background:#8881;padding:.6rem;border-radius:.3rem;user-select:all}
li pre{white-space:pre}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);
vertical-align:top}summary{cursor:pointer}.weight{font-weight:600;text-transform:uppercase;font-size:.8rem}
"""
SHOWN = 20


def page(advice: Advice, changed: Difference | None = None) -> str:
    """The whole page."""
    when = datetime.datetime.fromtimestamp(advice.at_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = "\n".join(_body(advice, changed))
    title = f"Advice on {advice.cluster}"
    first = f"<p>{escape(verdict(advice))}.<br>{when}, cluster id {escape(advice.cluster_id)}</p>"
    return html_page(title, STYLE, f"<h1>{escape(title)}</h1>\n{first}\n{body}")


def _body(advice: Advice, changed: Difference | None) -> Iterator[str]:
    for weight in WEIGHTS:
        rules = dict.fromkeys(one.rule for one in advice.findings if one.weight is weight)
        for rule in rules:
            yield _rule([one for one in advice.findings if one.rule == rule and one.weight is weight])
    if changed is not None:
        yield listing(
            "New since the earlier look", (f"{one.rule}, {one.subject}: {one.evidence}" for one in changed.new)
        )
        gone = "Gone since then" + (", or not seen this time" if changed.unsure else "")
        yield listing(gone, map(_line, changed.gone))
    waived = (f"{_line(one.finding)} (until {one.waiver.until}: {one.waiver.reason})" for one in advice.waived)
    yield listing("Waived", waived)
    yield listing("Could not be seen", (followed(f"{one.what}: {one.why}", one.hint) for one in advice.unseen))
    yield listing("Unknown to everybody", (followed(f"{one.what}: {one.why}", one.hint) for one in advice.untold))
    yield listing("Of the policy", advice.remarks)
    yield _profiles(advice.profiles)
    yield _stories({one.story for one in advice.findings})


def _stories(names: Collection[str]) -> str:
    """Each story that a finding leads to, with the logs after each step: the page needs no other one."""
    told = [_story(story) for story in STORIES if story.name in names]
    return f"<h2>How it happens</h2>\n{''.join(told)}" if told else ""


def _story(story: Story) -> str:
    steps = play(story)
    lines = "".join(
        f"<li>{'<b>Fault:</b> ' if step.move.is_fault else ''}{escape(sentence(story.setup, step))}\n"
        f"<pre>{escape(chr(10).join(picture(step.after)))}</pre></li>\n"
        for step in steps
    )
    return (
        f'<section id="story-{story.name}">\n<h3>{escape(story.title)}</h3>\n'
        f"<p>With {escape(described(story.setup))}.</p>\n<ol>{lines}</ol>\n<p>So it ends: {escape(ended(steps))}."
        f"<br>{escape(story.moral)}</p>\n<p>Drawn, and stepped through by keyboard:</p>\n"
        f"<pre>twinshore simulate story {story.name} --html {story.name}.html</pre>\n</section>\n"
    )


def _rule(findings: list[Finding]) -> str:
    first = findings[0]
    some, more = findings[:SHOWN], findings[SHOWN:]
    rest = f"<details><summary>{len(more):,} more</summary>{''.join(map(_finding, more))}</details>" if more else ""
    return (
        f'<article class="{first.weight}" id="{escape(first.rule)}-{first.weight}">\n'
        f'<h2><span class="weight">{first.weight}</span> {escape(first.says)}</h2>\n'
        f"<p><b>At risk:</b> {escape(first.risk)}.<br><b>When:</b> {escape(first.event)}.{_see(first)}</p>\n"
        f"{''.join(map(_finding, some))}{rest}</article>"
    )


def _see(one: Finding) -> str:
    return f'<br><a href="#story-{escape(one.story)}">See it happen, step by step</a>' if one.story else ""


def _finding(one: Finding) -> str:
    lines = "".join(f"<pre>{escape(line)}</pre>\n" for line in one.commands)
    by_hand = f"<p>By hand: {escape(one.by_hand)}.</p>\n" if one.by_hand else ""
    safe = "<p><code>--fix</code> does it.</p>\n" if one.safe else ""
    return f"<p><b>{escape(one.subject)}</b>: {escape(one.evidence)}</p>\n{lines}{by_hand}{safe}"


def _line(one: Finding) -> str:
    return f"{one.rule}, {one.subject}: {one.evidence}"


def listing(title: str, lines: Iterable[str]) -> str:
    """These lines under a title; nothing where there is none."""
    rows = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h2>{escape(title)}</h2>\n<ul>{rows}</ul>" if rows else ""


def _profiles(profiles: tuple[Profile, ...]) -> str:
    rows = "".join(
        f"<tr><td>{escape(one.topic)}</td><td>{one.kind}</td><td>{one.copies}</td>"
        f"<td>{'' if one.min_isr is None else one.min_isr}</td><td>{escape('; '.join(one.differs))}</td></tr>\n"
        for kind in (Kind.NEITHER, Kind.UNKNOWN, Kind.AP, Kind.CP)
        for one in profiles
        if one.kind is kind
    )
    if not rows:
        return ""
    head = "<tr><th>topic</th><th>promise</th><th>replicas</th><th>min.insync</th><th>what differs</th></tr>"
    return (
        "<h2>What topics promise</h2>\n<p>CP for producers with acks=all, AP for those with acks=1.</p>\n"
        f"<table>{head}\n{rows}</table>"
    )
