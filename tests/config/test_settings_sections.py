"""Sections of the settings declare themselves: who adds one adds a file, and changes no other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.pages import render_settings_page
from twinshore.config import schema, sections
from twinshore.config.errors import ConfigError
from twinshore.config.settings import Settings, parse_settings

NEW_SECTION = """
from dataclasses import dataclass
from twinshore.config.declaration import setting
from twinshore.config.schema import Section, read_section

@dataclass(frozen=True)
class Ferry:
    \"\"\"What a ferry carries.\"\"\"
    decks: int = setting(2, "decks that it has", low=1, high=9)

def read(written, complaints):
    return read_section(Ferry, written.raw, written.place, complaints) or Ferry()

SECTION = Section("ferry", 45, (("[ferry]", Ferry),), read, overridden=True)
"""


def parse(text: str, **env: str) -> Settings:
    return parse_settings(text, name="mirror.toml", env=env)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value.message


def test_a_section_is_added_by_a_file_alone(tmp_path: Path) -> None:
    (tmp_path / "ferry.py").write_text(NEW_SECTION, encoding="utf-8")
    schema.all_sections.cache_clear()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sections, "__path__", [*sections.__path__, str(tmp_path)])
            section = next(one for one in schema.all_sections() if one.name == "ferry")
        assert parse("[ferry]\ndecks = 3").of(section).decks == 3
        assert parse("", TWINSHORE_FERRY_DECKS="4").of(section).decks == 4
        assert "[ferry] deks: unknown; did you mean decks?" in refusal("[ferry]\ndeks = 3")
        assert "[fery] unknown; did you mean ferry?" in refusal("[fery]")
        page = render_settings_page()
        assert page.index("## `[mirror.spark]`") < page.index("## `[ferry]`") < page.index("## `[delay]`")
        assert "| `decks` | whole number | `2` | 1 to 9 | decks that it has |" in page
    finally:
        schema.all_sections.cache_clear()
        del sys.modules[f"{sections.__name__}.ferry"]
    assert "[ferry] unknown" in refusal("[ferry]")


def test_every_section_has_a_place_of_its_own() -> None:
    places = [place for one in schema.all_sections() for place, _ in one.tables]
    assert len(places) == len(set(places))
    orders = [one.order for one in schema.all_sections()]
    assert len(orders) == len(set(orders))


def test_a_section_s_model_is_made_once_however_many_links_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each link of a mirror reads the whole file: a model for each section of it was most of what a beginning took."""
    clusters = [f"[clusters.c{number}]\nbootstrap = ['c{number}:1']\n" for number in range(5)]
    links = [f"[links.'c{number}->c{number + 1}']\n" for number in range(4)]
    few, many = "".join([*clusters[:2], links[0]]), "".join([*clusters, *links])
    parse_settings(few, name="settings.toml", env={})
    made: list[str] = []
    monkeypatch.setattr(schema, "create_model", lambda name, **_: made.append(name))
    assert len(parse_settings(many, name="settings.toml", env={}).links) == 4
    assert made == []
