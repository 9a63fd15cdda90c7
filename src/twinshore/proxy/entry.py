"""A client before it is served: it logs in, or it is refused, after a pause that makes guessing slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from twinshore.proxy.core.login import Answer, Enter, Judge, Login, Refuse, Who
from twinshore.proxy.core.moves import HangUp, Parts
from twinshore.proxy.core.seen import Ranges

LOGIN_S: Final = 30.0
# As brokers make a client wait whose login they refuse (connection.failed.authentication.delay.ms), and longer.
PAUSE_S: Final = 0.5


class Host(Protocol):
    """Who lets the client in."""

    def say(self, frame: Parts) -> None:
        """Sends this."""

    def let_in(self, who: Who) -> None:
        """From now on it is served."""

    def see_out(self, frame: Parts, why: str) -> None:
        """Sends this as its last word, and hangs up; `why` is for the log."""

    def hang_up(self, why: str) -> None:
        """At once."""


class Entry:
    """That of one client. While `busy` nothing more of it is read. `judge` says why somebody is not who he says; empty
    where he is; None where nobody can be asked. `refuses` says why somebody is not let in who is who he says."""

    def __init__(
        self,
        login: Login,
        judge: Callable[[Who], Awaitable[str | None]],
        now_s: float,
        refuses: Callable[[Who], str] = lambda _: "",
    ) -> None:
        self._login, self._judge, self._refuses = login, judge, refuses
        self._until_s = now_s + LOGIN_S
        self._pause: asyncio.TimerHandle | None = None
        self._judging: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._pause is not None or self._judging is not None

    @property
    def software(self) -> str:
        """The library that the client says that it is."""
        return self._login.software

    def late(self, now_s: float) -> bool:
        """Whether the client has had time enough."""
        return now_s > self._until_s

    def take(self, frame: memoryview, offers: Ranges, host: Host) -> None:
        """One frame of the client's. WireError where it cannot be read."""
        match self._login.step(frame, offers):
            case Answer(said):
                host.say(said)
            case Enter(who, said, refused):
                if why := self._refuses(who):
                    self._refuse(refused, why, host)
                else:
                    host.say(said)
                    host.let_in(who)
            case Refuse(why, said):
                self._refuse(said, why, host)
            case Judge() as asked:
                self._judging = asyncio.get_running_loop().create_task(self._ask(asked, host))
            case HangUp(why):
                host.hang_up(why)

    def close(self) -> None:
        """The client is gone."""
        if self._pause is not None:
            self._pause.cancel()
        if self._judging is not None:
            self._judging.cancel()

    def _refuse(self, said: Parts, why: str, host: Host) -> None:
        self._pause = asyncio.get_running_loop().call_later(PAUSE_S, host.see_out, said, why)

    async def _ask(self, asked: Judge, host: Host) -> None:
        why = await self._judge(asked.who)
        if why == "":
            why = self._refuses(asked.who)
        self._judging = None
        if why is None:
            host.hang_up("no cluster answers that could say whether its login is right")
        elif why:
            self._refuse(asked.refused, f"its login is refused: {why}", host)
        else:
            host.say(asked.entered)
            host.let_in(asked.who)
