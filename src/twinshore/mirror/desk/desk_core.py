"""The desk without its sockets: every pump of every lane has a seat here, is granted time, and is told what to carry.

Events come in as method calls, with the time, and with how long the link is still ours (`allowed_s`), as arguments.
What is to be done for them waits in `wanted`, in order. Who may write is decided by `relay`, for each lane; what is on
which lane is decided here. Pure.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from twinshore.fleet import NamedPartition
from twinshore.mirror.core.commands import Beat, Done, Released, SayReady, Used
from twinshore.mirror.core.desk_words import Assign, Bounds, Finish, Granted, OfDesk, OfPump, Release, Stop, Take
from twinshore.mirror.desk.commands import Account, Command, Dismiss, Keep, LaneKey, Seat, Tell
from twinshore.mirror.desk.relay import Landing, Post, Relay, Say
from twinshore.mirror.lane.orders import Carried, Stoppage, TrackOrder
from twinshore.mirror.lane.quota import STILL


class DeskCore:
    """Of all links of one process."""

    def __init__(self) -> None:
        self._posts: dict[LaneKey, Post] = {}
        # By link: until when a pump of lanes that are closed may still write, and what it sent may still land.
        self._past: dict[str, tuple[float, float]] = {}
        self._landings: dict[str, Landing] = {}
        self._given: set[tuple[str, str, int]] = set()  # new twins that were ever on a lane
        self._visits = 0
        self._wanted: list[Command] = []

    def wanted(self) -> list[Command]:
        """What is to be done since the last call, in this order."""
        wanted, self._wanted = self._wanted, []
        return wanted

    # -- what the driver asks and tells

    def open_lane(self, key: LaneKey, grant_s: float, token: str) -> None:
        """Tides that know the token may carry it from now on; one that is open stays as it is."""
        if key not in self._posts:
            granted_s, lands_s = self._past.get(key[0], (0.0, 0.0))
            relay = Relay(grant_s, granted_until_s=granted_s, lands_until_s=lands_s)
            self._posts[key] = Post(relay, token, self._landings.setdefault(key[0], Landing()))

    def token_of(self, key: LaneKey) -> str:
        """What a tide has to know that carries the lane as it was opened last; empty where it is closed."""
        return post.token if (post := self._posts.get(key)) else ""

    def assign(self, key: LaneKey, orders: Iterable[TrackOrder], now_s: float) -> None:
        """More partitions for a lane, at once where a pump runs; those that are on a lane of the link stay there."""
        post, placed = self._posts[key], self.placed(key[0])
        fresh = tuple(self._given_once(key[0], order) for order in orders if order.named not in placed)
        for order in fresh:
            post.place(order)
        if fresh:
            self._tell_all(post, Assign(fresh))
            waits = post.landing.told((), [order.named for order in fresh], now_s)
            if waits and post.relay.holder is not None:
                self._tell(post, post.relay.holder, Take(waits))

    def _given_once(self, link: str, order: TrackOrder) -> TrackOrder:
        if not order.untouched:
            return order
        twin = link, order.target_topic_id, order.partition
        order = replace(order, untouched=twin not in self._given)
        self._given.add(twin)
        return order

    def placed(self, link: str) -> dict[NamedPartition, int]:
        """Which lane of the link each partition belongs to now."""
        return {named: lane for lane, post in self._of(link) for named in post.tracks}

    def move(self, link: str, named: NamedPartition, lane: int) -> bool:
        """Asks the lane that carries a partition to let go of it for another; False when nobody is there to ask."""
        for number, post in self._of(link):
            if number != lane and named in post.tracks:
                holder = post.relay.holder
                if holder is None or post.relay.finishing or named in post.moving or named in post.leaving:
                    return False
                post.moving[named] = lane
                self._tell(post, holder, Release(named))
                return True
        return False

    def withdraw(self, link: str, topic: str, partition: int, now_s: float) -> bool:
        """Takes a topic, or one partition, -1: all, from the link's lanes; asked again until True, when no pump writes
        it: its pump has said so, or was lost and has no grant any more."""

        def leaves(named: NamedPartition) -> bool:
            return named.topic == topic and partition in (-1, named.partition)

        for _, post in self._of(link):
            ours = [named for named in post.tracks if leaves(named)]
            for named in ours:
                post.moving.pop(named, None)
                post.leaving.add(named)
                self._tell_all(post, Release(named))
            if ours and post.relay.free(now_s):
                post.let_go()
        return not any(leaves(named) for named in self.placed(link))

    def bound(self, key: LaneKey, bounds: Bounds) -> None:
        """From now on the lane's pumps keep these throttles and weights."""
        if post := self._posts.get(key):
            post.bounds = bounds
            self._tell_all(post, bounds)

    def used(self, link: str) -> dict[int, dict[str, list[float]]]:
        """By lane and topic, "" for the whole link: bytes fetched lately, and whether more would have been."""
        return {lane: post.used for lane, post in self._of(link)}

    def holding(self, key: LaneKey, now_s: float) -> tuple[int | None, float, bool]:
        """The tide that pumps the lane, for how long it has, and whether an heir stands by. One whose grant has run out
        pumps no more, whether or not it has said so."""
        post = self._posts[key]
        holder = post.relay.holder if post.relay.manned(now_s) else None
        return holder, now_s - post.holder_since_s, post.relay.heir is not None

    def seated(self, key: LaneKey) -> frozenset[int]:
        """The tides of the lane that are here."""
        return frozenset(post.pumps) if (post := self._posts.get(key)) else frozenset()

    def carried_bytes(self) -> dict[LaneKey, int]:
        """How much each lane has carried since it was opened."""
        return {key: post.bytes for key, post in self._posts.items()}

    def unmanned(self, link: str, now_s: float) -> frozenset[NamedPartition]:
        """The partitions that are on lanes that no pump carries now."""
        return frozenset(named for _, post in self._of(link) if not post.relay.manned(now_s) for named in post.tracks)

    def waits_s(self, key: LaneKey, now_s: float) -> float:
        """For how long no pump may begin on the lane because what the last one sent may still land."""
        return self._posts[key].relay.waits_s(now_s)

    def finish_all(self, link: str) -> None:
        """Asks every pump of a link to stop in good order; none begins any more."""
        for _, post in self._of(link):
            post.closing, post.relay.heir = True, None
            for tide in post.pumps:
                self._tell(post, tide, Finish() if tide == post.relay.holder else Stop())

    def lands_s(self, link: str, now_s: float) -> float:
        """For how long what the link's pumps have sent may still land, whatever becomes of them and of this process."""
        ours = [max(post.relay.lands_until_s, post.landing.until_s) for _, post in self._of(link)]
        return max(0.0, max([*ours, self._past.get(link, (0.0, 0.0))[1]]) - now_s)

    def nobody_writes(self, link: str, now_s: float) -> bool:
        """Whether no pump of the link is there, and lost ones have no grant any more."""
        return all(not post.pumps and post.relay.free(now_s) for _, post in self._of(link))

    def idle(self, link: str, now_s: float) -> bool:
        """Whether nobody writes in the link's name, and nothing that was sent in it can still land."""
        return self.nobody_writes(link, now_s) and not self.lands_s(link, now_s) and self.past_is_over(link, now_s)

    def past_is_over(self, link: str, now_s: float) -> bool:
        """Whether nothing more comes of closed lanes: no grant runs, and what was sent has landed."""
        return now_s >= max(self._past.get(link, (0.0, 0.0)))

    def close_link(self, link: str) -> None:
        """Forgets a link's lanes; a pump that still speaks for them is hung up on, and may not hear of it."""
        for lane, post in list(self._of(link)):
            del self._posts[link, lane]
            granted_s, lands_s = self._past.get(link, (0.0, 0.0))
            lands_s = max(lands_s, post.relay.lands_until_s, post.landing.until_s)
            self._past[link] = max(granted_s, post.relay.granted_until_s), lands_s
            self._wanted += [Dismiss(seat) for seat in post.pumps.values()]

    # -- what time brings

    def awaited(self) -> frozenset[str]:
        """The links of which some heir stands by: they want a `tick` now and then."""
        return frozenset(link for (link, _), post in self._posts.items() if post.relay.heir is not None)

    def tick(self, now_s: float, allowed_s: Mapping[str, float]) -> None:
        """`allowed_s` of each link that is awaited."""
        for (link, _), post in self._posts.items():
            if post.relay.heir is not None:
                self._say(post, post.relay.tick(now_s, allowed_s[link]), now_s)

    # -- pumps

    def arrive(self, key: LaneKey, tide: int, token: str) -> Seat | None:
        """A pump is at the door. Its seat; None where it is not let in."""
        post = self._posts.get(key)
        if post is None or not hmac.compare_digest(token.encode(), post.token.encode()):
            return None
        if post.closing or tide in post.pumps:
            return None
        self._visits += 1
        seat = post.pumps[tide] = Seat(*key, tide, self._visits)
        self._tell(post, tide, Assign(tuple(post.tracks.values())))
        if post.bounds:
            self._tell(post, tide, post.bounds)
        return seat

    def depart(self, seat: Seat, now_s: float, allowed_s: float) -> None:
        """Its connection is gone."""
        if post := self._seated(seat):
            del post.pumps[seat.tide]
            # An heir that goes takes nothing with it: what the holder was asked to let go of is still on its way.
            if seat.tide == post.relay.holder:
                post.moving.clear()
            self._say(post, post.relay.lost(seat.tide, now_s, allowed_s), now_s)

    def hear(self, seat: Seat, word: OfPump, now_s: float, allowed_s: float) -> None:
        """A pump has said this."""
        post = self._seated(seat)
        if post is None:
            return
        tide, holds = seat.tide, seat.tide == post.relay.holder
        says: list[Say] = []
        match word:
            case SayReady():
                says = [] if post.closing else post.relay.arrived(tide, now_s, allowed_s)
            case Beat():
                if holds:
                    self._account(seat, post, word.carried, word.incidents, word.speed)
                says = post.relay.beat(tide, now_s, allowed_s, float(word.speed.get(STILL, 0.0)))
            case Used() if holds:
                post.used = word.used
            case Released() if holds:
                self._account(seat, post, [word.carried] if word.carried else [])
                self._released(seat.link, post, word, now_s)
            case Done():
                if holds:
                    post.landing.hear(word.handovers, now_s)
                    self._account(seat, post, word.carried, word.incidents, word.speed)
                    post.paces, post.paces_at_s = tuple(word.paces), now_s
                says = post.relay.done(tide, tuple(word.handovers), now_s, allowed_s, word.unread_s)
                if post.relay.free(now_s):
                    post.let_go()
        self._say(post, says, now_s, word.asked_s if isinstance(word, Beat) else 0.0)

    def _seated(self, seat: Seat) -> Post | None:
        """What a pump of an earlier term said before it was disconnected is not its namesake's word."""
        post = self._posts.get(seat.key)
        return post if post and post.pumps.get(seat.tide) == seat else None

    def _account(
        self,
        seat: Seat,
        post: Post,
        carried: Iterable[Carried],
        incidents: Iterable[Stoppage] = (),
        speed: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        account = Account(*seat.key, tuple(carried), tuple(incidents), dict(speed))
        post.account(account.carried)
        self._wanted.append(Keep(account))

    def _released(self, link: str, post: Post, word: Released, now_s: float) -> None:
        """The lane has let go: from now on the partition is the other lane's, which starts where this one stood."""
        handovers = (word.handover,) if word.handover else ()
        post.landing.hear(handovers, now_s)
        lane, order = post.release(word.named)
        other = None if lane is None else self._posts.get((link, lane))
        if other is None or order is None:
            return
        other.place(order)
        self._tell_all(other, Assign((order,)))
        if other.relay.holder is not None:
            self._tell(other, other.relay.holder, Take(other.landing.told(handovers, [word.named], now_s)))

    # -- what pumps are told

    def _say(self, post: Post, says: Iterable[Say], now_s: float, asked_s: float = 0.0) -> None:
        for say in says:
            match say.what:
                case "go":
                    self._tell(post, say.tide, post.begin(say.handovers, now_s))
                case "grant":
                    self._tell(post, say.tide, Granted(asked_s, say.grant_s))
                case "finish":
                    self._tell(post, say.tide, Finish())
                case _:
                    self._tell(post, say.tide, Stop())

    def _tell(self, post: Post, tide: int, word: OfDesk) -> None:
        if seat := post.pumps.get(tide):
            self._wanted.append(Tell(seat, word))

    def _tell_all(self, post: Post, word: OfDesk) -> None:
        self._wanted += [Tell(seat, word) for seat in post.pumps.values()]

    def _of(self, link: str) -> Iterator[tuple[int, Post]]:
        return ((lane, post) for (name, lane), post in self._posts.items() if name == link)
