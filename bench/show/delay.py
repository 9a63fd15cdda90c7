"""What is claimed of the delay monitor; a part of `make show-groups`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random

from bench.kit.claims import Claim, Finding
from bench.kit.playing import by_test
from twinshore.delay.alarms import AlarmKind
from twinshore.delay.simulation.traces import TRAFFIC, trace
from twinshore.delay.simulation.trial import FAULTS, KINDS, detection, false_alarms_a_day, watch
from twinshore.fleet.settings_delay import DelaySettings

SCENARIO = "tests/scenarios/test_delay.py"
RUNS, RUNS_LONG = 40, 400
HOURS, HOURS_LONG = 24, 240
PERIODS_MAX = 4
SHORT = {AlarmKind.END_OFFSET: "windows", AlarmKind.RECOVERY_POINT: "recovery_point"}

# Each by the test that plays it.
TESTS = (
    (
        "delay-windows",
        "the published window algorithm, exactly: a test for each of its lines and thresholds",
        "tests/delay/test_windows.py",
    ),
    (
        "delay-traps",
        "missing readings, partitions that appear or are made anew, pauses, resets: no false alarm, no blind spot",
        "tests/delay/test_guard.py",
    ),
    (
        "delay-streaming",
        "the same as a Structured Streaming query: the pure step's verdicts, and a state that survives restarts",
        "tests/delay/test_streaming.py",
    ),
    (
        "delay-stall",
        "a paused mirror raises within 4 PT and clears, records and groups; a backfill with timestamps of a year ago"
        " has a recovery point right within 1 s; a monitor killed with -9 is found from another process",
        f"{SCENARIO}::test_a_stall_and_a_killed_monitor_are_found_and_clear",
    ),
    (
        "delay-cut",
        "a cut line between mirror and target raises within 4 PT, by the query on Spark, and clears",
        f"{SCENARIO}::test_a_cut_line_is_found_by_the_query_and_clears",
    ),
    (
        "delay-old-timestamps",
        "MirrorMaker 2's own latency metric says a year of the same backfill",
        f"{SCENARIO}::test_mirrormakers_own_latency_is_fooled_by_old_timestamps",
    ),
    (
        "delay-lost-ends",
        "a twin that lost its end, or was made anew, while no monitor ran has an alarm once its bound is over",
        "tests/scenarios/test_delay_sight.py::test_what_a_twin_lost_while_no_monitor_ran_is_an_alarm_soon",
    ),
    (
        "delay-restless-windows",
        "a place whose window begins anew again and again is an alarm though others are judged",
        "tests/delay/test_unjudged.py",
    ),
    (
        "delay-long-ids",
        "groups with ids of any length have alarms and places in SQLite, PostgreSQL and MariaDB",
        "tests/store/test_delays.py::test_alarms_and_places_of_groups_with_the_longest_ids_are_kept",
    ),
    (
        "delay-sight",
        "a topic whose twin was deleted, or that the monitor may not describe any more, is an alarm until it is seen"
        " again or known to be over, and none of its alarms clears meanwhile; on two versions of Kafka",
        "tests/scenarios/test_delay_sight.py",
    ),
    (
        "delay-deleted",
        "what never crossed of a topic that was deleted is an alarm, until there is such a topic again",
        "tests/scenarios/test_delay_sight.py::test_what_never_crossed_of_a_deleted_topic_is_an_alarm",
    ),
    (
        "delay-pause",
        "a pause ends no alarm: what stands stays open as paused, nobody is told again, and it is well when it crossed",
        "tests/delay/test_pauses.py::test_an_alarm_that_stands_is_not_well_again_by_a_pause",
    ),
    (
        "delay-causes",
        "one cause, one alarm: whatever is wrong in whatever order, each alarm is told or listed in its cause, and none"
        " clears while it holds",
        "tests/delay/test_causes.py",
    ),
    (
        "delay-one-message",
        "a killed driver with three late topics is one message, and so is a dead target",
        f"{SCENARIO}::test_a_killed_driver_and_a_dead_target_are_one_message_each",
    ),
    (
        "delay-mirrormaker",
        "a pair that MirrorMaker 2 mirrors: its stall raises within 4 PT and clears",
        f"{SCENARIO}::test_the_stall_of_a_pair_that_mirrormaker_mirrors_is_found",
    ),
)


def claims(seed: int, only: Collection[str] = ()) -> list[Claim]:  # noqa: ARG001  # nothing here is shared
    """All of them."""
    found = [Claim(name, says, by_test(name, test)) for name, says, test in TESTS]
    hour = "an hour of simulated jitter, for each kind of traffic, raises nothing"
    beside = f"on the same seeded traces both find a standstill within {PERIODS_MAX} PT, and no run without one raises"
    return [*found, Claim("delay-jitter", hour, _jitter(seed)), Claim("delay-beside", beside, _beside(seed))]


def _jitter(seed: int) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        hours = HOURS_LONG if long else HOURS
        alarms = 0
        for traffic in TRAFFIC:
            for number in range(hours):
                alarms += len(watch(trace(traffic, Random(f"{seed} {number}"), 3600), DelaySettings()))
        figure = f"{hours} hours of each of {len(TRAFFIC)} kinds of traffic, seed {seed}: {alarms} alarms"
        return Finding(
            figure, alarms == 0, (("delay_jitter_hours", hours * len(TRAFFIC)), ("delay_jitter_alarms", alarms))
        )

    return run


def _beside(seed: int) -> Callable[[bool], Finding]:
    def run(long: bool) -> Finding:
        settings = DelaySettings()
        runs = RUNS_LONG if long else RUNS
        words, numbers, well = [], [], True
        for traffic in TRAFFIC[:3]:
            found = detection(traffic, FAULTS[0], seed, runs, settings)
            daily = false_alarms_a_day(traffic, seed, 6.0, settings)
            for kind in KINDS:
                slowest_s = max(found[kind].times_s, default=float("inf"))
                words.append(f"{traffic.name}, {kind}: {found[kind].words}, {daily[kind]:g} false a day")
                well &= slowest_s <= PERIODS_MAX * settings.section.period_s and daily[kind] == 0
                well &= len(found[kind].times_s) == runs
                if traffic is TRAFFIC[0]:
                    numbers.append((f"delay_{SHORT[kind]}_slowest_s", slowest_s))
        return Finding(f"{runs} standstills each, seed {seed}: {'; '.join(words)}", well, tuple(numbers))

    return run
