"""Operations asked without a command line: settings and a store of their own, clusters where nothing answers."""

from __future__ import annotations

from twinshore.config.settings import Settings, parse_settings

LINK, BACK = "east->west", "west->east"


def settings_of(links: str) -> Settings:
    """Settings with the clusters east and west and these links."""
    clusters = '[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n[clusters.west]\nbootstrap = ["127.0.0.1:2"]\n'
    return parse_settings(f"{clusters}[mirror]\nlease_s = 2.0\nprogress_s = 0.5\n{links}", name="settings", env={})
