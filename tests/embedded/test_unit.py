"""The systemd unit of the control plane, as systemd itself reads it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.embedded import unit
from perfci.errors import ServiceError, SettingsError

ROOT = Path(__file__).parents[2]


def verified(path: Path) -> str:
    """What systemd has to say about it: nothing. Other units of this machine are not ours to judge."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        assert not os.environ.get("CI"), "systemd-analyze is missing; on Debian: sudo apt-get install systemd"
        pytest.skip("systemd-analyze is not here")
    command = [analyze, "verify", "--man=no", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "\n".join(line for line in done.stderr.splitlines() if unit.NAME in line)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / 'a "team\'s" $HOME at 100%'
    folder.mkdir()
    (folder / "perfci.toml").write_text('[suite.x]\nrepo = "."\nrun = "pytest"\n')
    (folder / "environment").write_text("PERFCI_DATABASE_URL=postgresql+psycopg://perfci@/perfci\n")
    (folder / "environment").chmod(0o600)
    return folder


@pytest.mark.parametrize("user", ["root", ""])
def test_systemd_takes_the_unit(folder: Path, user: str) -> None:
    text = unit.text(folder / "perfci.toml", user=user, environment=folder / "environment")
    assert verified(unit.write(folder, text)) == ""


def test_systemd_would_have_complained(folder: Path) -> None:
    text = unit.text(folder / "perfci.toml", user="root", environment=None)
    assert "KilMode" in verified(unit.write(folder, text.replace("KillMode=", "KilMode=")))


def test_the_command_line_writes_it_and_says_how_to_start_it(folder: Path) -> None:
    def perfci(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "perfci.cli", "units", *words]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    done = perfci(".", "--environment", "environment", "--user", "root")
    assert done.returncode == 0, done.stderr
    assert "systemctl daemon-reload && systemctl enable --now perfci.service" in done.stdout
    written = (folder / unit.NAME).read_text()
    assert written == perfci("-", "--environment", "environment", "--user", "root").stdout
    assert perfci("no/such/folder").returncode == 2


def test_a_password_file_that_others_can_read_is_refused(folder: Path) -> None:
    (folder / "environment").chmod(0o644)
    with pytest.raises(SettingsError, match="can be read by others; chmod 600"):
        unit.text(folder / "perfci.toml", user="root", environment=folder / "environment")


def test_a_folder_that_is_not_there_is_told(folder: Path) -> None:
    with pytest.raises(ServiceError, match="No such file or directory; name a folder"):
        unit.write(folder / "absent", "")
