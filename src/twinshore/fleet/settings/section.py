"""What a section of the settings says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from twinshore.fleet.settings.edge import Complaints

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Written:
    """What somebody wrote as a section. `place` is what complaints call it, like `[store]`. `before`: the values of
    the sections of a lower order, by name."""

    raw: object
    place: str
    before: Mapping[str, Any] = field(default_factory=dict)

    def parted(self, *names: str) -> tuple[object, dict[str, object]]:
        """The section without these keys, and what stands under each of them: another section, or a table."""
        if not isinstance(self.raw, Mapping):
            return self.raw, {name: {} for name in names}
        rest = {key: value for key, value in self.raw.items() if key not in names}
        return rest, {name: self.raw.get(name, {}) for name in names}


@dataclass(frozen=True, slots=True)
class Section(Generic[T]):
    """One section. `order`: where it comes on the page, and in what is complained of. `tables`: each place where its
    keys stand, and the class that declares them. `read` gives the section's value; it adds what is wrong to the
    complaints, and then its value is not used. `inside`: the section of whose entries it is a part; empty for one at
    the top. `overridden`: whether the environment may say otherwise."""

    name: str
    order: int
    tables: tuple[tuple[str, type], ...]
    read: Callable[[Written, Complaints], T]
    inside: str = ""
    overridden: bool = False

    @property
    def keys(self) -> type:
        """The class that declares the keys of its first table."""
        return self.tables[0][1]
