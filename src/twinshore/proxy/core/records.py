"""Produce and Fetch: records go through as the bytes they are. What stands around them is read, and written anew only
where it names a broker, or a topic that is elsewhere. Pure.

Of new leaders that brokers tell beside an error nothing is passed on: they come with leader epochs, which clients are
not told (see `lookups`). A client asks for metadata instead, as clients did before brokers told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from twinshore.kafka.errors import Code
from twinshore.proxy.core.layout import Layout, Place
from twinshore.proxy.core.moves import ANSWER_S, Ask, Drop, Errand, HangUp, Move, Parts, Pass, Run, Say
from twinshore.proxy.core.seen import Seen
from twinshore.proxy.core.sessions import FetchSessions
from twinshore.wire.serving import fetch, produce
from twinshore.wire.serving.requests import Request

_NOT_HERE = int(Code.NOT_LEADER_OR_FOLLOWER)
_SESSIONS = 7
NO_EPOCH = -1
_SESSION_IS_OVER = fetch.FetchAnswer(0, int(Code.FETCH_SESSION_ID_NOT_FOUND), 0, [])


class Records:
    """For one client. `stale` is called where a broker says that it leads a partition no more."""

    def __init__(self, layout: Layout, stale: Callable[[], None]) -> None:
        self._layout, self._stale = layout, stale
        self._sessions = FetchSessions()

    def on_produce(self, request: Request, place: Place | None, seen: Seen) -> Move:
        """What is for topics of other clusters is refused, so that the client looks again where they are."""
        asked = produce.read_request(request.view, request.position, request.version)
        here = [one for one in asked.batches if place and not seen.is_elsewhere(str(one.topic), place.cluster)]
        if asked.transactional_id is not None:
            return self._refused(request, asked, Code.INVALID_TXN_STATE)
        if place is None or not here:
            return self._refused(request, asked, Code.NOT_LEADER_OR_FOLLOWER)
        wait_s = ANSWER_S + asked.timeout_ms / 1000
        if len(here) == len(asked.batches):
            heard = partial(self._produced, version=request.version)
            return Pass(place, wait_s, heard, asked.acks != 0)
        if not asked.acks:
            return HangUp("it sent records for a topic that has moved, and waits for no answer")
        return Run(self._produce_part(request, asked, place, here), wait_s)

    def _refused(self, request: Request, asked: produce.ProduceRequest, code: Code) -> Move:
        if not asked.acks:
            return (
                Drop() if not asked.batches else HangUp("it sent records to the wrong broker, and waits for no answer")
            )
        appended = [produce.Appended(one.topic, one.partition, int(code), -1) for one in asked.batches]
        return Say([produce.write_answer(request.version, produce.ProduceAnswer(appended))])

    def _produce_part(
        self, request: Request, asked: produce.ProduceRequest, place: Place, here: Sequence[produce.Batches]
    ) -> Errand:
        version = request.version
        body = produce.write_request(version, asked._replace(batches=here))
        (said,) = yield [Ask(place, request.key, version, body)]
        kept = {(one.topic, one.partition) for one in here}
        code = Code.REQUEST_TIMED_OUT if said is None else Code.NONE
        answer = produce.ProduceAnswer([]) if said is None else produce.read_answer(said, 0, version)
        given = {(one.topic, one.partition): one for one in answer.appended}
        joined = []
        for one in asked.batches:
            key = (one.topic, one.partition)
            refused = produce.Appended(*key, int(code) if key in kept else _NOT_HERE, -1)
            joined.append(given.get(key, refused))
        return [produce.write_answer(version, _without_leaders(answer._replace(appended=joined)))]

    def _produced(self, view: memoryview, at: int, version: int) -> Parts | None:
        answer = produce.read_answer(view, at, version)
        if any(one.error == _NOT_HERE for one in answer.appended):
            self._stale()
        if not answer.endpoints and not any(one.current_leader for one in answer.appended):
            return None
        return [produce.write_answer(version, _without_leaders(answer))]

    def on_fetch(self, request: Request, place: Place | None, seen: Seen) -> Move:
        """A session is the broker's own, as a client reaches it by one port only; it ends once a topic of it moves."""
        version = request.version
        asked = fetch.read_request(request.view, request.position, version)
        if place is None:
            return Say(self._fetch_refused(version, asked.wanted))
        sessions = version >= _SESSIONS and asked.session_epoch >= 0
        if sessions and asked.session_epoch > 0 and not self._sessions.goes_on(asked, seen, place.cluster):
            return Say(fetch.write_answer(version, _SESSION_IS_OVER))
        here = [one for one in asked.wanted if not seen.is_elsewhere(str(one.topic), place.cluster)]
        wait_s = ANSWER_S + asked.max_wait_ms / 1000
        if len(here) == len(asked.wanted):
            noted = asked if sessions else None
            heard = partial(self._fetched, version=version, cluster=place.cluster, noted=noted)
            return Pass(place, wait_s, heard, body=_body_without_epochs(version, asked))
        if not here:
            return Say(self._fetch_refused(version, asked.wanted))
        return Run(self._fetch_part(request, asked, place, here), wait_s)

    def _fetch_refused(self, version: int, wanted: Sequence[fetch.Wanted]) -> Parts:
        return fetch.write_answer(version, fetch.FetchAnswer(0, 0, 0, [_nothing(one) for one in wanted]))

    def _fetch_part(
        self, request: Request, asked: fetch.FetchRequest, place: Place, here: Sequence[fetch.Wanted]
    ) -> Errand:
        """Without a session, as what is refused here would be missing from the broker's. The broker may not wait: the
        client is to hear at once what has moved."""
        version = request.version
        alone = asked._replace(
            wanted=[_without_epoch(one) for one in here], dropped=(), session_id=0, session_epoch=-1, max_wait_ms=0
        )
        (said,) = yield [Ask(place, request.key, version, [fetch.write_request(version, alone)])]
        ours = set(here)
        moved = [_nothing(one) for one in asked.wanted if one not in ours]
        if said is None:
            moved = [_nothing(one) for one in asked.wanted]
        answer = fetch.FetchAnswer(0, 0, 0, []) if said is None else fetch.read_answer(said, 0, version)
        whole = self._fetch_renamed(answer, place.cluster)
        return fetch.write_answer(version, whole._replace(fetched=[*whole.fetched, *moved]))

    def _fetched(
        self, view: memoryview, at: int, version: int, cluster: str, noted: fetch.FetchRequest | None
    ) -> Parts | None:
        answer = fetch.read_answer(view, at, version)
        if noted is not None:
            self._sessions.heard(noted, answer)
        if any(one.error == _NOT_HERE for one in answer.fetched):
            self._stale()
        if all(one.current_leader is None and one.preferred_replica < 0 for one in answer.fetched):
            return None
        return fetch.write_answer(version, self._fetch_renamed(answer, cluster))

    def _fetch_renamed(self, answer: fetch.FetchAnswer, cluster: str) -> fetch.FetchAnswer:
        fetched = [
            one._replace(current_leader=None, preferred_replica=self._layout.number(cluster, one.preferred_replica))
            for one in answer.fetched
        ]
        return answer._replace(fetched=fetched)


def _without_leaders(answer: produce.ProduceAnswer) -> produce.ProduceAnswer:
    return answer._replace(appended=[one._replace(current_leader=None) for one in answer.appended], endpoints=())


def _body_without_epochs(version: int, asked: fetch.FetchRequest) -> Parts | None:
    """None where it names no leader epoch. Clients of librdkafka name that of the last batch that they have read: the
    broker would refuse it once there was another leader, and they know no other."""
    if all(one.leader_epoch < 0 and one.last_fetched_epoch < 0 for one in asked.wanted):
        return None
    return [fetch.write_request(version, asked._replace(wanted=[_without_epoch(one) for one in asked.wanted]))]


def _without_epoch(one: fetch.Wanted) -> fetch.Wanted:
    return one._replace(leader_epoch=NO_EPOCH, last_fetched_epoch=NO_EPOCH)


def _nothing(one: fetch.Wanted) -> fetch.Fetched:
    return fetch.Fetched(one.topic, one.partition, _NOT_HERE, -1, -1)
