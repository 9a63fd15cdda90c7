"""What a seed is about: which topics, which faults and how often. Each seed leaves most faults out, so that what is
left meets more of itself."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.simulation.source_log import Style
from twinshore.kafka.protocol.record_batch import Codec

# How often in a virtual second, when a seed has the fault at all.
RATES = {
    "move_leader": 0.3,
    "stop_node": 0.25,
    "lag_follower": 0.5,
    "lose_line": 0.5,
    "darken_line": 0.06,
    "slow_node": 0.15,
    "kill_task": 0.12,
    "pause_task": 0.15,
    "freeze_task": 0.05,
    "kill_driver": 0.06,
    "pause_driver": 0.06,
    "move_partition": 0.3,
    "second_task": 0.15,
    "lose_target_data": 0.12,
    "truncate_source": 0.08,
    "part_idle_source": 0.15,
    "jump_clock": 0.2,
    "throttle": 0.1,
    "retain": 0.3,
    "lose_beginning": 0.1,
    "recreate_source": 0.02,
    "recreate_target": 0.02,
    "write_foreign": 0.03,
    "compact": 0.3,
    "corrupt": 0.02,
}
# Drawn apart, so that a seed that has none of them is the run that it was before they were known.
LATER_RATES = {"lose_coordinator_line": 0.12, "pause_topic": 0.15}
LAST_RATES = {"turn_markers_away": 0.1}
CHANGE_RATES = {"reopen_link": 0.15}
# These end a partition, so a seed has at most one of them.
FATAL = ("recreate_source", "recreate_target", "write_foreign", "corrupt", "truncate_source", "part_idle_source")
ORDINARY = tuple(name for name in RATES if name not in FATAL and name != "compact")


@dataclass(frozen=True, slots=True)
class Plan:
    styles: dict[str, tuple[int, Style]]
    copies: tuple[int, int]
    tasks: int
    task_run_s: float
    chaos_s: float
    write_every_s: float
    expiry_ms: int
    errand_fails: float
    store_fails: float
    faults: dict[str, float]
    anchor_sequence: int = 0

    def sentence(self) -> str:
        kinds = ", ".join(f"{topic}: {count} of {style}" for topic, (count, style) in self.styles.items())
        return f"{kinds}; copies {self.copies}, {self.tasks} tasks, {self.chaos_s:.0f} s of {', '.join(self.faults)}"


def plan_of(chance: random.Random) -> Plan:
    """A plan drawn from the seed's own chance."""
    old_part = chance.choice((0.0, 0.0, 1.0, 0.5))
    styles = {}
    for topic in ("a", "b")[: chance.randint(1, 2)]:
        styles[topic] = (chance.randint(1, 2), style_of(chance, old_part))
    faults = chance.sample(ORDINARY, chance.randint(2, 9))
    if chance.random() < 0.35:
        faults.append(chance.choice(FATAL))
    kinds = [style for _, style in styles.values()]
    if "second_task" in faults and (old_part or any(style.keys or style.transactions for style in kinds)):
        # Without the brokers' memory nothing but the grant keeps two tasks apart, and markers are not in it.
        faults.remove("second_task")
    if "second_task" in faults:
        # It asks no ledger either: what rests for everybody else it would go on with. And a gap becomes markers.
        faults = [name for name in faults if name not in (*FATAL, "retain")]
    if any(style.keys or style.transactions for style in kinds):
        # A look compares the twin's last record with the source's, and asks for the epoch of what was told. Where the
        # cleaner took that record, or a marker is what comes last, nothing tells these faults in what a task carried
        # and could not tell before it died.
        faults = [name for name in faults if name not in ("truncate_source", "part_idle_source", "write_foreign")]
    if any(style.keys for style in kinds):
        faults.append("compact")
    plan = Plan(
        styles,
        copies=(chance.choice((1, 2, 3)), chance.choice((1, 2, 3))),
        tasks=chance.choice((1, 1, 2)),
        task_run_s=chance.choice((3.0, 6.0, 30.0)),
        chaos_s=chance.choice((10.0, 20.0, 40.0)),
        write_every_s=chance.choice((0.1, 0.2, 0.5)),
        expiry_ms=chance.choice((60_000, 120_000, 600_000)),
        errand_fails=chance.choice((0.0, 0.02, 0.1)),
        store_fails=chance.choice((0.0, 0.05)),
        faults={name: RATES[name] * chance.choice((0.5, 1.0, 3.0)) for name in faults},
        anchor_sequence=chance.choice((0, 0, 2**31 - 40)),
    )
    if any(style.keys or style.transactions for style in kinds):
        plan = with_errors(plan)
    plan = with_changes(plan)
    apart = _apart(plan)
    if apart.random() < 0.75:
        return plan
    later = {name: rate * apart.choice((1.0, 3.0)) for name, rate in LATER_RATES.items()}
    return replace(plan, faults={**plan.faults, **later}, tasks=2)


def _apart(plan: Plan, what: str = "") -> random.Random:
    """Chance that depends on the plan alone. What seeds find depends on the names that fields had at first."""
    first_names = repr(plan).replace("tasks=", "lanes=").replace("task_run_s=", "tide_s=")
    return random.Random(first_names + what)


def with_errors(plan: Plan) -> Plan:
    """Some of the plans that write markers have brokers that take none for long."""
    apart = _apart(plan, " and markers")
    if apart.random() < 0.6:
        return plan
    return replace(
        plan, faults={**plan.faults, **{name: rate * apart.choice((1.0, 3.0)) for name, rate in LAST_RATES.items()}}
    )


def with_changes(plan: Plan) -> Plan:
    """In some plans operators change the link."""
    apart = _apart(plan, " and changes")
    if apart.random() < 0.85:
        return plan
    return replace(
        plan, faults={**plan.faults, **{name: rate * apart.choice((1.0, 3.0)) for name, rate in CHANGE_RATES.items()}}
    )


def style_of(chance: random.Random, old_part: float) -> Style:
    keys = chance.choice((0, 0, 0, 0, 0, 4))
    return Style(
        old_part,
        keys,
        transactions=chance.random() < 0.15,
        append_time=chance.random() < 0.1,
        codecs=chance.choice(((Codec.NONE,), (Codec.NONE,), (Codec.NONE, Codec.GZIP))),
        records_max=chance.choice((1, 3, 5)),
        large_part=chance.choice((0.0, 0.3, 1.0)),
    )
