"""Where a store in SQLite lies: a relative path counts from the folder of the settings file, wherever one starts."""

from __future__ import annotations

from pathlib import Path

from twinshore.fleet.errors import ConfigError

SQLITE = ("sqlite:///", "sqlite+pysqlite:///")


def beside(url: str, settings_file: Path) -> str:
    """The store's URL with a full path. Links are not followed, so a settings file may be one.

    Refused where the file is missing there and lies in the working directory: older versions counted from that, and
    an empty store must not take its place.
    """
    head = next((head for head in SQLITE if url.startswith(head)), "")
    path, mark, query = url.removeprefix(head).partition("?")
    if not head or not path or path == ":memory:" or path.startswith("file:") or Path(path).is_absolute():
        return url
    folder = settings_file.absolute().parent
    place, here = folder / path, Path(path).absolute()
    if here.exists() and not place.exists():
        raise ConfigError(
            f"the store {path} lies in the working directory, {here.parent}, and not beside the settings file, in "
            f"{place.parent}: a relative path counts from the settings file's folder",
            hint=f"stop whatever uses it and move {here.name}, {here.name}-wal and {here.name}-shm to {place.parent}, "
            "or write its full path in [store] url",
        )
    return f"{head}{place}{mark}{query}"
