"""An advice in sentences, for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twinshore.advisor.advice import Advice, Difference
from twinshore.advisor.profiles import Kind
from twinshore.advisor.rule import WEIGHTS, Finding
from twinshore.fleet.sentences import counted, listed

SHOWN = 10


def sentences_of(advice: Advice, *, everything: bool = False) -> Iterator[str]:
    """The verdict first, then what each rule found, by weight. Of findings that are alike ten are shown, unless
    `everything` is wanted."""
    yield verdict(advice)
    most = len(advice.findings) if everything else SHOWN
    for kind in dict.fromkeys((one.rule, one.weight) for one in advice.findings):
        yield ""
        yield from _of_rule([one for one in advice.findings if (one.rule, one.weight) == kind], most)
    yield from _beside(advice, most)


def verdict(advice: Advice) -> str:
    """All of it in a line."""
    by_weight = [
        f"{sum(one.weight is weight for one in advice.findings)} {weight}"
        for weight in WEIGHTS
        if any(one.weight is weight for one in advice.findings)
    ]
    found = f"{counted(len(advice.findings), 'finding')}: {', '.join(by_weight)}" if by_weight else "nothing was found"
    unseen = f"; {counted(len(advice.unseen), 'thing')} could not be seen" if advice.unseen else ""
    waived = f"; {len(advice.waived)} waived" if advice.waived else ""
    return f"{advice.cluster}: {found}{waived}{unseen}"


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
