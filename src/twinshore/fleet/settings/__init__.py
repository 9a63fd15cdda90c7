"""Settings: TOML text and environment in, frozen values out, or one ConfigError that lists all that is wrong.

`whole` is what one process is told, and `sections` a file for each section, which declares its keys with `declaring`.
"""

from twinshore.fleet.settings.sections.mirror import MirrorSettings, SparkSettings
from twinshore.fleet.settings.sections.store import StoreSettings
from twinshore.fleet.settings.whole import Settings, load_settings, parse_settings, with_arrow

__all__ = [
    "MirrorSettings",
    "Settings",
    "SparkSettings",
    "StoreSettings",
    "load_settings",
    "parse_settings",
    "with_arrow",
]
