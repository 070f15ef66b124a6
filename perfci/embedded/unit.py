"""The systemd unit of a control plane. One is enough: `perfci up` looks after its components itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from perfci.errors import ServiceError, SettingsError

NAME = "perfci.service"


def text(config_path: Path, *, user: str, environment: Path | None) -> str:
    """environment: a file of NAME=VALUE lines, for what is secret. Raises SettingsError."""
    if environment is not None:
        _check_environment(environment)
    command = " ".join(_word(str(w)) for w in (sys.executable, "-P", "-m", "perfci.cli", "--config", config_path, "up"))
    lines = [
        "# Written by perfci units.",
        "[Unit]",
        "Description=perfci: Airflow, the hand-over to nodes, and the dashboard",
        "Wants=network-online.target",
        "After=network-online.target postgresql.service",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        *([f"User={user}"] if user else []),
        # A path to the end of the line: nothing in it is quoted.
        f"WorkingDirectory={_percent(str(config_path.parent))}",
        *([f"EnvironmentFile={_percent(str(environment.resolve()))}"] if environment else []),
        "Environment=PYTHONUNBUFFERED=1",
        f"ExecStart={command}",
        # It ends by itself where a component cannot live; a database may be back half a minute later.
        "Restart=on-failure",
        "RestartSec=30",
        # It ends its components itself; what is left after that is killed.
        "KillMode=mixed",
        "TimeoutStopSec=60",
        "UMask=0077",
        "NoNewPrivileges=yes",
        "ProtectSystem=full",
        "PrivateTmp=yes",
        "",
        "[Install]",
        f"WantedBy={'multi-user.target' if user else 'default.target'}",
    ]
    return "\n".join(lines) + "\n"


def write(folder: Path, unit: str) -> Path:
    """Where it lies now. Raises ServiceError."""
    path = folder / NAME
    new = folder / f".{NAME}.new"
    try:
        new.write_text(unit, "utf-8")
        new.replace(path)
    except OSError as error:
        raise ServiceError(
            f"{error.filename or path}: {error.strerror}", next_step="name a folder that you may write to"
        ) from error
    return path


def _check_environment(path: Path) -> None:
    """Passwords are in there."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}", next_step="write it first, or leave it out") from error
    if mode & 0o077:
        raise SettingsError(f"{path} can be read by others", next_step=f"chmod 600 {path}")
    if not os.access(path, os.R_OK):
        raise SettingsError(f"{path} cannot be read", next_step="run this as its owner")


def _word(text: str) -> str:
    """As systemd reads a word of a command."""
    escaped = _percent(text).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if set(escaped) & set(" \t\"'\\;") else escaped


def _percent(text: str) -> str:
    return text.replace("%", "%%")
