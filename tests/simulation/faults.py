"""What goes wrong in a world, one method for each fault of a plan. Whatever may rightly stop a partition excuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.clusters import NODES, Pair
from tests.simulation.connections import SourceWire, TargetWire
from tests.simulation.pump_model import PumpModel
from twinshore.kafka.protocol.error_codes import Code

if TYPE_CHECKING:
    from tests.simulation.world import World

SKEW_PART = 0.11  # of the expiry, for each of two clocks: below the quarter by which a task forgets before brokers do


class Faults:
    def __init__(self, world: World) -> None:
        self.world, self.clusters, self.schedule = world, world.clusters, world.schedule
        self.chance = world.schedule.chance

    def act(self, name: str) -> None:
        act: Callable[[], None] = getattr(self, name)
        act()

    def _pair(self) -> Pair:
        return self.chance.choice(list(self.clusters.pairs.values()))

    def _side(self) -> str:
        return self.chance.choice(("source", "target"))

    def _task(self) -> PumpModel | None:
        alive = [task for task in self.world.tasks if not task.ended]
        return self.chance.choice(alive) if alive else None

    # -- brokers

    def move_leader(self) -> None:
        """A clean election: test_a_clean_leader_keeps_what_was_acknowledged."""
        pair, side = self._pair(), self._side()
        log = pair.source if side == "source" else pair.twin
        choices = [node for node in log.in_sync if node != log.leader and self.clusters.up(side, node)]
        if choices:
            self.world.elect(pair, side, self.chance.choice(choices))

    def stop_node(self) -> None:
        side, node = self._side(), self.chance.choice(NODES)
        self.world.stop_node(side, node, self.chance.uniform(0.1, 4.0))

    def turn_markers_away(self) -> None:
        """A broker answers markers with an error, perhaps for longer than the mirror waits before it says so."""
        code = self.chance.choice((-1, Code.request_timed_out, Code.not_enough_replicas, Code.kafka_storage_error))
        until_s = self.schedule.now_s + self.chance.choice((1.0, 10.0, 50.0)) * self.chance.uniform(0.5, 1.0)
        self.clusters.unmarking[self.chance.choice(NODES)] = (until_s, code)

    def lag_follower(self) -> None:
        """A follower falls behind; after a while its leader goes on without it."""
        pair, side = self._pair(), self._side()
        log = pair.source if side == "source" else pair.twin
        followers = [node for node in log.nodes if node != log.leader]
        if followers:
            node = self.chance.choice(followers)
            self.world.lagging[side, pair.named, node] = self.schedule.now_s + self.chance.uniform(0.5, 6.0)

    def lose_target_data(self) -> None:
        """An unclean leader, or a disk that lost its end: test_an_unclean_leader_loses_what_was_acknowledged."""
        pair = self._pair()
        self._lose("target", pair)

    def truncate_source(self) -> None:
        pair = self._pair()
        self._lose("source", pair)

    def part_idle_source(self) -> None:
        """Nobody writes for a while, so that nothing is fetched behind a look or a hand-over. Then the source cannot be
        reached, and meanwhile an unclean leader loses its end and grows beyond it."""
        pair = self._pair()
        quiet_s = self.chance.uniform(0.5, 8.0)
        pair.quiet_until_s = self.schedule.now_s + quiet_s
        if self.chance.random() < 0.5:
            for node in pair.twin.nodes:
                self.world.break_lines("target", node)
        self.schedule.after(quiet_s, lambda: self._part(pair))

    def _part(self, pair: Pair) -> None:
        if self.world.calm:
            return
        before = pair.source.end
        for node in NODES:
            self.world.break_lines("source", node)
        self._lose("source", pair)
        for _ in range(100):
            if pair.source.end > before:
                break
            pair.source.write(self.schedule.now_ms)

    def _lose(self, side: str, pair: Pair) -> None:
        log = pair.source if side == "source" else pair.twin
        up = [node for node in log.nodes if self.clusters.up(side, node)]
        if not up or log.end == log.start or not log.entries:
            return
        node = self.chance.choice(up)
        ends = [
            *(entry.base for entry in log.entries[:1] if entry.base >= log.start),
            *(entry.end for entry in log.entries),
        ]
        before = log.ends[node]
        log.ends[node] = min(before, self.chance.choice(ends[-6:]))
        # Who has less than before comes from a crash that took the end of its disk: its connections broke with it. And
        # where brokers may have forgotten the link's producer, or lose all that it wrote, nobody could refuse a request
        # that is on its way while the log loses its end; so there all of them crash.
        forgotten = pair.source.style.old_part or log.ends[node] <= max(log.start, log.entries[0].base)
        crashed = node == log.leader or log.ends[node] < before
        for other in log.nodes if forgotten else [node] if crashed else []:
            self.world.break_lines(side, other)
        log.in_sync.discard(node)
        self.world.elect(pair, side, node)

    def retain(self) -> None:
        pair = self._pair()
        log = pair.source
        if pair.twin.spoiled_at is not None:
            return  # what an heir would compare, should the task die that met the foreign write
        reach = 1.0 if self.chance.random() < 0.2 else 0.8
        bound = min(log.high, pair.twin.end) if self.chance.random() < 0.8 else log.high
        log.cut(log.start + int(self.chance.random() * reach * max(0, bound - log.start)))
        self.world.excuse_gap(pair)

    def lose_beginning(self) -> None:
        """Somebody deletes records of a twin, but not its last batch: what is behind that a look could not compare."""
        pair = self._pair()
        twin = pair.twin
        bound = min(twin.high, twin.entries[-1].base) if twin.entries else 0
        if bound > twin.start and self.clusters.leads("target", pair):
            twin.cut(self.chance.randint(twin.start + 1, bound))
            pair.beheaded = True

    def compact(self) -> None:
        pair = self._pair()
        if pair.source.style.keys:
            pair.source.compact()

    def corrupt(self) -> None:
        """A bit of a batch on the source's disk turns."""
        pair = self._pair()
        if pair.source.entries and not pair.source.style.keys:
            number = self.chance.randrange(len(pair.source.entries))
            entry = pair.source.entries[number]
            data = bytearray(entry.data)
            pair.source.damaged.setdefault((entry.base, entry.leader_epoch), entry.data)
            data[self.chance.randrange(61, len(data))] ^= 1 << self.chance.randrange(8)
            pair.source.entries[number] = entry._replace(data=bytes(data))
            pair.excuses.add("corrupt batch")

    def recreate_source(self) -> None:
        self.world.recreate("source", self.chance.choice(list(self.world.plan.styles)))

    def recreate_target(self) -> None:
        self.world.recreate("target", self.chance.choice(list(self.world.plan.styles)))

    def write_foreign(self) -> None:
        pair = self._pair()
        if pair.source.start > pair.twin.end:
            return  # the source has nothing there any more that it could be compared with
        if self.clusters.leads("target", pair):
            pair.twin.write_foreign(self.clusters.broker_ms)
            pair.excuses.update(("foreign write", "position disagreement", "truncation"))
            self.schedule.say(f"somebody writes to {pair.named} at {pair.twin.spoiled_at}")

    # -- networks and clocks

    def lose_line(self) -> None:
        task = self._task()
        if task is None:
            return
        lines: list[tuple[str, object]] = [("source", line) for line in task.sources]
        lines += [("target", node) for node in task.targets]
        if lines:
            side, key = self.chance.choice(lines)
            self.world.cut_line(task, side, key)

    def darken_line(self) -> None:
        """Nothing comes through any more, and nobody says so."""
        task = self._task()
        wires: list[SourceWire | TargetWire] = [*task.sources.values(), *task.targets.values()] if task else []
        if wires:
            self.chance.choice(wires).dark = True

    def slow_node(self) -> None:
        """A throttled or overloaded broker."""
        key = (self._side(), self.chance.choice(NODES))
        self.clusters.slow_s[key] = self.chance.choice((0.1, 0.7, 3.0))
        self.schedule.after(self.chance.uniform(0.5, 5.0), lambda: self._quicken(key))

    def _quicken(self, key: tuple[str, int]) -> None:
        self.clusters.slow_s.pop(key, None)

    def jump_clock(self) -> None:
        skew_ms = int(self.chance.uniform(-SKEW_PART, SKEW_PART) * self.clusters.expiry_ms)
        task = self._task()
        if task and self.chance.random() < 0.7:
            task.wall_skew_ms = skew_ms
        else:
            self.clusters.skew_ms = skew_ms

    def throttle(self) -> None:
        """An operator bounds the link, and takes the bound away again."""
        self.world.driver.throttle(self.chance.choice((300.0, 3_000.0)))
        self.schedule.after(self.chance.uniform(1.0, 8.0), lambda: self.world.driver.throttle(0.0))

    # -- processes

    def kill_task(self) -> None:
        task = self._task()
        if task:
            task.end("killed")

    def pause_task(self) -> None:
        task = self._task()
        if task and not task.paused:
            task.pause(self.chance.choice((0.3, 2.0, 8.0)) * self.chance.uniform(0.5, 1.5))

    def freeze_task(self) -> None:
        """Its machine is gone, and no connection says so."""
        task = self._task()
        if task and not task.paused:
            task.pause(1e9)

    def lose_coordinator_line(self) -> None:
        """The line between a task and its coordinator is lost on one side only, as where a network forgets a
        connection.
        """
        going = [task for task in self.world.tasks if task.going and not (task.ended or task.lawless)]
        if not going:
            return
        task = self.chance.choice(going)
        if self.chance.random() < 0.7:
            self.schedule.say(f"the coordinator loses {task.name}, which hears nothing of it")
            task.driver.departed(task)
            if self.chance.random() < 0.5:
                self.schedule.after(self.chance.uniform(0.0, 1.0), self.pause_topic)
        else:
            task.end("the driver is gone", unheard=True)

    def pause_topic(self) -> None:
        """An operator pauses a topic and resumes it: its partitions may come back to any task."""
        driver, topic = self.world.driver, self.chance.choice(list(self.world.plan.styles))
        names = [named for named in self.clusters.pairs if named.topic == topic]
        self.schedule.say(f"topic {topic} is paused")
        for named in names:
            driver.rest(named)
            self.schedule.after(self.chance.choice((0.1, 1.0, 5.0)), lambda one=named: driver.give_back(one))  # type: ignore[misc]

    def reopen_link(self) -> None:
        """An operator changes the link, or removes it and adds it again at once."""
        self.world.driver.reopen(heard=self.chance.random() < 0.5, after_s=self.chance.choice((0.0, 0.5)))

    def kill_driver(self) -> None:
        self.world.kill_driver(heard=self.chance.random() < 0.5)

    def pause_driver(self) -> None:
        self.world.driver.pause(self.chance.uniform(0.5, 12.0))

    def move_partition(self) -> None:
        self.world.driver.move()

    def second_task(self) -> None:
        """Another task writes the same twins at once, and asks nobody: only the brokers' memory is left."""
        self.world.rogue(self.chance.uniform(1.0, 8.0))
