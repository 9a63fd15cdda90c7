"""What went through the proxies in the last minutes, as they told the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twinshore.config.errors import ConfigError
from twinshore.kafka.clock import wall_ms
from twinshore.proxy.core.breakers import matches
from twinshore.proxy.core.traffic import By, Line, Sort, lines_of, sentence
from twinshore.proxy.operations.breakers import all_unseen, seconds_of
from twinshore.state.store import Store


@dataclass(frozen=True, slots=True)
class Asked:
    """`last_s`: of how long. `topic`, `client`: only these, as fuses name them. `page` from 1, `size` lines each."""

    by: By = By.TOPIC
    sort: Sort = Sort.BYTES
    last_s: int = 300
    topic: str = "*"
    client: str = "*"
    page: int = 1
    size: int = 20


@dataclass(frozen=True, slots=True)
class Page:
    """Some of `count` lines. `unseen`: what was named and is not among what went through."""

    lines: tuple[Line, ...]
    page: int
    pages: int
    count: int
    last_s: int
    unseen: tuple[str, ...] = ()

    def as_values(self) -> dict[str, Any]:
        """For programs."""
        whole = {"page": self.page, "pages": self.pages, "count": self.count, "last_s": self.last_s}
        return {**whole, "lines": [one.as_values() for one in self.lines]}

    def sentences(self) -> list[str]:
        """For people."""
        if not self.lines:
            return list(self.unseen) or ["no proxy has told of any traffic"]
        told = [sentence(one) for one in self.lines]
        if self.pages > 1:
            told.append(f"page {self.page} of {self.pages}, {self.count:,} in all")
        return told


def asked_of(by: str, sort: str, last: str, topic: str, client: str, page: int, size: int) -> Asked:
    """ConfigError where one of these is no such thing."""
    try:
        return Asked(By(by), Sort(sort), seconds_of(last, "--last"), topic, client, page, size)
    except ValueError as error:
        raise ConfigError(f"{error}", hint=f"--by is one of {', '.join(By)}; --sort one of {', '.join(Sort)}") from None


def look(asked: Asked, store: Store) -> Page:
    """As of the windows that ended in that time."""
    now_ms = wall_ms()
    rows = store.traffic.rows(now_ms - asked.last_s * 1000, now_ms)
    meant = [row for row in rows if matches(asked.topic, row.key.topic) and matches(asked.client, row.key.client)]
    lines = lines_of(meant, asked.by, asked.sort)
    first = (asked.page - 1) * asked.size
    pages = max(1, -(-len(lines) // asked.size))
    said = all_unseen(asked.topic, asked.client, rows, f"in the last {asked.last_s} s")
    some = tuple(lines[first : first + asked.size])
    return Page(some, asked.page, pages, len(lines), asked.last_s, said)
