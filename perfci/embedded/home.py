"""AIRFLOW_HOME of the embedded Airflow: all of its settings are in one file there, none in the environment.

`AIRFLOW_HOME=.perfci/airflow airflow …` therefore works by hand as well. Folder and secrets are readable by
their owner alone. The metadata database holds nothing that perfci could not lose: results are elsewhere.
"""

from __future__ import annotations

import base64
import errno
import importlib.util
import json
import os
import secrets
import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from perfci import share
from perfci.config import Settings
from perfci.embedded.environment import inherited
from perfci.embedded.ports import LOOPBACK
from perfci.errors import ServiceError
from perfci.supervisor import Program, Tree, log_end

USER = "admin"
# Measuring takes one; a worker that has ended a short step is not free again for five seconds.
PARALLELISM = 4
_MAX_LOG_BYTES = 10_000_000
_MIGRATION_LIMIT_S = 300.0
# Above the last line of a traceback there may be the one that says what happened.
_LOG_LINES = 400
_NO_ROOM = ("database or disk is full", os.strerror(errno.ENOSPC))


@dataclass(frozen=True, slots=True)
class Home:
    """environment: of every component, and so of every step."""

    folder: Path
    environment: Mapping[str, str]

    @property
    def database(self) -> Path:
        return self.folder / "airflow.db"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def password_file(self) -> Path:
        return self.folder / "password.json"

    @property
    def mark(self) -> str:
        """Carried by every process of the Airflow that lives here."""
        return f"airflow:{self.folder}"

    def log(self, name: str) -> Path:
        """Where a component writes; what has grown too long is kept once more as `.old`."""
        path = self.logs / f"{name}.log"
        if path.is_file() and path.stat().st_size > _MAX_LOG_BYTES:
            path.replace(path.with_suffix(".log.old"))
        return path

    def password(self) -> str:
        return str(json.loads(self.password_file.read_text())[USER])

    def program(self, *words: str) -> Program:
        """`airflow WORDS` as a program of a tree."""
        command = (sys.executable, "-P", "-m", "airflow", *words)
        return Program(words[0], command, self.environment, self.folder, self.log(words[0]))


def of(settings: Settings) -> Home:
    """Raises ServiceError when Airflow is not installed beside perfci."""
    if importlib.util.find_spec("airflow") is None:
        raise ServiceError(f"Airflow is not installed for {sys.executable}", next_step="pip install 'perfci[airflow]'")
    folder = settings.state.resolve() / "airflow"
    return Home(folder=folder, environment=inherited(settings) | {"AIRFLOW_HOME": str(folder)})


def prepare(home: Home, *, port: int, scheduled: bool, executor: str) -> None:
    """Make the folder, the secrets and the settings.

    scheduled: the schedule starts runs by itself; otherwise only what is triggered runs.
    Raises ServiceError. The caller holds the lock of the state folder.
    """
    try:
        home.logs.mkdir(parents=True, exist_ok=True)
        home.folder.chmod(0o700)
        for stale in home.folder.glob("*.pid"):
            stale.unlink()
        kept = _kept_secrets(home)
        _write_private(home.password_file, json.dumps({USER: kept["password"]}) + "\n")
        _write_private(
            home.folder / "airflow.cfg", _settings(home, kept, port=port, scheduled=scheduled, executor=executor)
        )
    except OSError as error:
        raise _unwritable(home, error) from error


def has_unfinished_runs(home: Home) -> bool:
    """An earlier command was killed while a DAG ran. Asked of the file itself, before anything is started."""
    try:
        connection = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
        try:
            found = connection.execute("SELECT 1 FROM dag_run WHERE state IN ('running', 'queued') LIMIT 1").fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        return True  # not known: the careful way to start is right in any case
    return found is not None


def _kept_secrets(home: Home) -> Mapping[str, str]:
    """Made once; a file that was cut short is made anew, which only ends sessions in a browser."""
    path = home.folder / "secrets.json"
    names = ("jwt_secret", "secret_key", "fernet_key", "password")
    try:
        kept = json.loads(path.read_text())
        if all(isinstance(kept.get(name), str) and kept[name] for name in names):
            path.chmod(0o600)
            return {name: kept[name] for name in names}
    except (FileNotFoundError, ValueError, AttributeError):
        pass
    made = {
        "jwt_secret": secrets.token_hex(64),  # HS512 wants 64 bytes
        "secret_key": secrets.token_hex(32),
        "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "password": secrets.token_urlsafe(18),
    }
    _write_private(path, json.dumps(made, indent=1) + "\n")
    return made


def _write_private(path: Path, text: str) -> None:
    """In one step, readable by the owner alone."""
    new = path.with_name(f".{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        os.fchmod(stream.fileno(), 0o600)
        stream.write(text)
    new.replace(path)


def _settings(home: Home, kept: Mapping[str, str], *, port: int, scheduled: bool, executor: str) -> str:
    url = f"http://{LOOPBACK}:{port}"
    sections: dict[str, dict[str, object]] = {
        "core": {
            "executor": ",".join(dict.fromkeys(filter(None, ("LocalExecutor", executor)))),
            "dags_folder": share.folder("dags"),
            "load_examples": False,
            "parallelism": PARALLELISM,
            "dags_are_paused_at_creation": False,
            "fernet_key": kept["fernet_key"],
            "simple_auth_manager_users": f"{USER}:admin",
            "simple_auth_manager_passwords_file": home.password_file,
            "execution_api_server_url": f"{url}/execution/",
        },
        "database": {"sql_alchemy_conn": f"sqlite:///{home.database}"},
        "logging": {"base_log_folder": home.logs},
        "api": {"host": LOOPBACK, "port": port, "base_url": url, "workers": 1, "secret_key": kept["secret_key"]},
        "api_auth": {"jwt_secret": kept["jwt_secret"]},
        "scheduler": {
            "use_job_schedule": scheduled,
            # A job may wait for the device behind others for hours and is not stuck.
            "task_queued_timeout": 43200,
        },
        # Parsing takes processor time from what is being measured; the files change with perfci's version only.
        "dag_processor": {"min_file_process_interval": 600, "parsing_processes": 1},
        "usage_data_collection": {"enabled": False},
    }
    lines = ["# Written by perfci at every start."]
    for section, values in sections.items():
        lines += ["", f"[{section}]"]
        lines += [f"{name} = {str(value).replace('%', '%%')}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def needs_migration(home: Home) -> bool:
    """`airflow db migrate` takes seconds, so a note tells which version has done it to the end."""
    return not home.database.is_file() or _migrated(home) != metadata.version("apache-airflow-core")


def migrate(home: Home, tree: Tree) -> None:
    """Raises ServiceError. A database that was never finished is made anew."""
    note = home.folder / "migrated"
    try:
        if not _migrated(home):
            for part in home.folder.glob("airflow.db*"):
                part.unlink()
        note.unlink(missing_ok=True)
        code = tree.run(home.program("db", "migrate"), limit_s=_MIGRATION_LIMIT_S)
        if code:
            said = log_end(home.log("db"), lines=_LOG_LINES)
            if any(words in said for words in _NO_ROOM):
                raise ServiceError(f"the disk of {home.folder} is full", next_step="free some space and try again")
            last = said.rpartition("\n")[2] or f"code {code}"
            raise ServiceError(
                f"Airflow's database cannot be made: {last}", next_step=f"delete {home.folder} and try again"
            )
        home.database.chmod(0o600)
        _write_private(note, metadata.version("apache-airflow-core") + "\n")
    except OSError as error:
        raise _unwritable(home, error) from error


def _migrated(home: Home) -> str:
    note = home.folder / "migrated"
    return note.read_text().strip() if note.is_file() else ""


def _unwritable(home: Home, error: OSError) -> ServiceError:
    return ServiceError(
        f"{error.filename or home.folder}: {error.strerror}", next_step="make room and make it writable"
    )
