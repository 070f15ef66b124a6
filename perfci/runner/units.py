"""A systemd unit for the node's worker."""

from __future__ import annotations

from pathlib import Path

from perfci.config import FILE_NAME

NAME = "perfci-worker.service"
SYSTEM = Path("/etc/systemd/system")


def folder_of(*, system: bool) -> Path:
    return SYSTEM if system else Path.home() / ".config" / "systemd" / "user"


def text(folder: Path, *, node: str, user: str, system: bool) -> str:
    """system: of the whole machine; else one of a user's own, for which there is no `user`."""
    as_user = f"User={user}\n" if user else ""
    wanted_by = "multi-user.target" if system else "default.target"
    return f"""# Written by perfci runner setup.
[Unit]
Description=perfci node {node}
Wants=network-online.target
After=network-online.target nvidia-persistenced.service

[Service]
{as_user}WorkingDirectory={folder}
ExecStart={folder}/worker/bin/perfci --config {folder}/{FILE_NAME} runner start
Restart=always
RestartSec=10
# The worker tells the server that it goes; then everything below it is killed.
TimeoutStopSec=60
KillMode=mixed
UMask=0022
# No NoNewPrivileges: suites run as another user, by sudo.

[Install]
WantedBy={wanted_by}
"""
