"""AIRFLOW_HOME of the embedded Airflow: all of its settings are in one file there, none in the environment.

`AIRFLOW_HOME=.perfci/airflow airflow …` therefore works by hand as well. Folder and secrets are readable by
their owner alone.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from perfci.config import Settings
from perfci.embedded.environment import inherited
from perfci.errors import ServiceError, SettingsError
from perfci.supervisor import Program

USER = "admin"
_MAX_LOG_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Home:
    """environment: of every component, and so of every step. server: URL of a database server; empty: SQLite."""

    folder: Path
    environment: Mapping[str, str]
    server: str = ""

    @property
    def database_url(self) -> str:
        return self.server or f"sqlite:///{self.database}"

    @property
    def database(self) -> Path:
        return self.folder / "airflow.db"

    @property
    def plugins(self) -> Path:
        return self.folder / "plugins"

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
    """Raises ServiceError when Airflow is not installed beside perfci, SettingsError for another kind of database."""
    if importlib.util.find_spec("airflow") is None:
        raise ServiceError(f"Airflow is not installed for {sys.executable}", next_step="pip install 'perfci[airflow]'")
    folder = settings.state.resolve() / "airflow"
    environment = inherited(settings) | {"AIRFLOW_HOME": str(folder)}
    return Home(folder, environment, _server(settings.airflow_database_url))


def make(home: Home) -> Mapping[str, str]:
    """The folder and the secrets, which are returned. Raises OSError. The caller holds the lock of the state folder."""
    home.logs.mkdir(parents=True, exist_ok=True)
    home.folder.chmod(0o700)
    home.plugins.mkdir(exist_ok=True)
    for stale in home.folder.glob("*.pid"):
        stale.unlink()
    kept = _kept_secrets(home)
    write_private(home.password_file, json.dumps({USER: kept["password"]}) + "\n")
    return kept


def _server(url: str) -> str:
    """With the one driver that serves Airflow's synchronous and asynchronous halves."""
    if not url:
        return ""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise SettingsError(
            "service.airflow_database is no database URL", next_step="write postgresql+psycopg://user@host/database"
        ) from error
    if parsed.get_backend_name() != "postgresql":
        raise SettingsError(
            f"service.airflow_database names {parsed.get_backend_name()!r}",
            next_step="use PostgreSQL, or leave it empty",
        )
    return parsed.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


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
    write_private(path, json.dumps(made, indent=1) + "\n")
    return made


def write_private(path: Path, text: str) -> None:
    """In one step, readable by the owner alone."""
    new = path.with_name(f".{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        os.fchmod(stream.fileno(), 0o600)
        stream.write(text)
    new.replace(path)


def unwritable(home: Home, error: OSError) -> ServiceError:
    return ServiceError(
        f"{error.filename or home.folder}: {error.strerror}", next_step="make room and make it writable"
    )
