"""Builds HTML from functions and values. Text is escaped; markup is a type of its own, so nothing is escaped twice or
not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

VOID_TAGS = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"


def render(*children: Child) -> Markup:
    return Markup("".join(map(_render, children)))


def _render(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str | int):
        return escape(str(child))
    return "".join(map(_render, child))


def tag(element: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """An element. `class_` and `for_` are written without the underscore, `data_poll` as `data-poll`; False and None
    are left out, True has no value.
    """
    words = [element]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = key.rstrip("_").replace("_", "-")
        words.append(shown if value is True else f'{shown}="{escape(str(value))}"')
    opened = f"<{' '.join(words)}>"
    return Markup(opened if element in VOID_TAGS else f"{opened}{render(*children)}</{element}>")


def link(where: str, *children: Child, **attributes: str | bool | None) -> Markup:
    return tag("a", *children, href=where, **attributes)


def table(heads: Iterable[Child], rows: Iterable[Iterable[Child]], *, none: str = "none", caption: str = "") -> Markup:
    """A table. A head that begins with `#` is of numbers."""
    titles = list(heads)
    numbers = [isinstance(title, str) and title.startswith("#") for title in titles]
    head = [
        tag("th", title[1:] if isinstance(title, str) and number else title, scope="col", class_=_class(number))
        for title, number in zip(titles, numbers, strict=True)
    ]
    body = [
        tag("tr", [tag("td", cell, class_=_class(number)) for cell, number in zip(row, numbers, strict=True)])
        for row in rows
    ]
    if not body:
        return tag("p", none, class_="none")
    said = tag("caption", caption) if caption else None
    whole = tag("table", said, tag("thead", tag("tr", head)), tag("tbody", body))
    return tag("div", whole, class_="wide", tabindex=0, role="region", aria_label=caption or "table")


def _class(is_number: bool) -> str | None:
    return "number" if is_number else None


def field(label: str, name: str, *, help_: str = "", **attributes: str | int | bool | None) -> Markup:
    """A labelled input of a form."""
    place = f"field-{name}"
    attributes.setdefault("type", "text")
    if help_:
        attributes["aria_describedby"] = f"{place}-help"
    hint = tag("small", help_, id=f"{place}-help") if help_ else None
    return tag(
        "p", tag("label", label, for_=place), tag("input", id=place, name=name, **attributes), hint, class_="field"
    )


def button(label: str, *, danger: bool = False, **attributes: str | bool | None) -> Markup:
    return tag("button", label, type="submit", class_="danger" if danger else None, **attributes)
