"""A box is looked at, and made a node; the set-up may be killed and repeated."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from perfci import __version__, config
from perfci.errors import ServiceError, SettingsError
from perfci.runner import box, environments, findings, installed, setup, units, users
from perfci.runner.environments import Source
from perfci.runner.findings import Level
from perfci.runner.setup import Wish
from perfci.runner.users import Users
from tests.conftest import CI
from tests.runner.users import a_sudo


class ControlPlane:
    """Answers as `perfci serve` and the edge API do, by a clock of its own."""

    def __init__(self) -> None:
        self.skew, this = timedelta(0), self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps({"status": "ok", "version": __version__}).encode()
                self.send_response_only(200)
                self.send_header("Date", format_datetime(datetime.now(UTC) + this.skew, usegmt=True))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def there() -> Iterator[ControlPlane]:
    made = ControlPlane()
    yield made
    made.stop()


def a_wheel(folder: Path, *, says: str = "1") -> Path:
    """A package without dependencies, with the extras that perfci has."""
    path = folder / "perfci-9.9-py3-none-any.whl"
    about = "Metadata-Version: 2.1\nName: perfci\nVersion: 9.9\nProvides-Extra: edge\nProvides-Extra: runner\n"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("said.py", f"SAID = {says!r}\n")
        wheel.writestr("perfci-9.9.dist-info/METADATA", about)
        wheel.writestr("perfci-9.9.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("perfci-9.9.dist-info/RECORD", "")
    return path


def a_wish(folder: Path, there: ControlPlane, **options: object) -> Wish:
    given: dict[str, object] = {
        "server": there.url,
        "airflow": there.url,
        "name": "gpu-a",
        "hardware": "here",
        "folder": folder,
        "source": Source("perfci"),
        "runner": sys.executable,
    }
    return Wish(**(given | options))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------- looking


def levels(found: tuple[findings.Finding, ...], what: str) -> list[Level]:
    return [finding.level for finding in found if finding.what == what]


def test_a_box_that_is_fit_is_called_so(there: ControlPlane, tmp_path: Path) -> None:
    found = setup.look(a_wish(tmp_path, there))
    assert not findings.failed(found), [str(finding) for finding in found]
    for what in ("python", "git", "server", "airflow", "clock"):
        assert levels(found, what) == [Level.OK]


@pytest.mark.parametrize(("minutes", "level"), [(5, Level.WARN), (-5, Level.WARN), (60, Level.FAIL), (-60, Level.FAIL)])
def test_a_clock_that_is_off_is_told(there: ControlPlane, minutes: int, level: Level) -> None:
    there.skew = timedelta(minutes=minutes)
    found = box.reach(there.url, there.url, otherwise=Level.FAIL)
    assert levels(found, "clock") == [level]
    assert ("behind" if minutes > 0 else "ahead of") in next(str(f) for f in found if f.what == "clock")


def test_a_server_that_is_away_stops_no_setup_but_is_told(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:9"
    found = box.reach(nowhere, nowhere, otherwise=Level.WARN)
    assert [finding.level for finding in found] == [Level.WARN, Level.WARN]
    assert "does not answer" in found[0].text


def test_too_little_room_is_no_place_for_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real._replace(free=int(3e9)))
    assert box.disk(tmp_path / "not" / "yet", with_torch=True).level is Level.FAIL
    assert box.disk(tmp_path / "not" / "yet", with_torch=False).level is Level.WARN


@pytest.mark.parametrize("name", ["", "a/b", "jwks", "ü"])
def test_a_name_that_is_none_is_refused_before_anything_is_done(there: ControlPlane, tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="no usable name"):
        setup.look(a_wish(tmp_path, there, name=name))


# -------------------------------------------------------------------------------------- environments


def said_in(python: Path) -> str:
    ask = "import said; print(said.SAID)"
    return subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def test_an_environment_is_made_once_and_again_for_another_wheel(tmp_path: Path) -> None:
    told: list[str] = []
    folder, source = tmp_path / "runner", Source(str(a_wheel(tmp_path)), ("--no-index",))
    python = environments.make(folder, source.runner(), source, echo=told.append)
    assert said_in(python) == "1"
    environments.make(folder, source.runner(), source, echo=told.append)
    assert told[-1] == f"{folder}: is there already"
    a_wheel(tmp_path, says="2")
    environments.make(folder, source.runner(), source, echo=told.append)
    assert said_in(python) == "2"


def test_what_a_killed_setup_began_is_made_anew(tmp_path: Path) -> None:
    folder, source = tmp_path / "runner", Source(str(a_wheel(tmp_path)), ("--no-index",))
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("half")
    assert said_in(environments.make(folder, source.runner(), source, echo=print)) == "1"


def test_what_pip_says_is_told_and_nothing_counts_as_made(tmp_path: Path) -> None:
    told: list[str] = []
    source = Source("no-such-package", ("--no-index",))
    with pytest.raises(ServiceError, match="could not be made: -m pip install ended with exit code 1"):
        environments.make(tmp_path / "runner", source.runner(), source, echo=told.append)
    assert any("No matching distribution" in line for line in told)
    assert not (tmp_path / "runner" / "perfci-complete").exists()


# ------------------------------------------------------------------------------- settings, key, units


@pytest.fixture
def made_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's environment is the tests' own: making one takes a minute."""
    monkeypatch.setattr(environments, "make", lambda *_, **__: Path(sys.executable))


@pytest.mark.usefixtures("made_already")
def test_a_node_has_settings_a_key_and_a_name_and_keeps_them(there: ControlPlane, tmp_path: Path) -> None:
    wish = a_wish(tmp_path / "node", there, slots=4, queue="cpus", units=tmp_path / "units")
    setup.make(wish, echo=print)
    settings = config.load(wish.folder / "perfci.toml")
    assert settings.service.executor == "EdgeExecutor"
    assert (settings.service.server, settings.service.airflow_url) == (there.url, there.url)
    assert (settings.hardware["here"].queue, settings.hardware["here"].slots) == ("cpus", 4)
    node = installed.required(settings)
    assert (node.name, node.queue, node.slots) == ("gpu-a", "cpus", 4)
    key = installed.key_file(settings)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    public = installed.public_key_file(settings, node).read_text()
    assert "d" not in json.loads(public)
    before = key.read_bytes()
    setup.make(wish, echo=print)
    assert key.read_bytes() == before
    assert installed.public_key_file(settings, node).read_text() == public


@pytest.mark.usefixtures("made_already")
def test_settings_that_a_person_changed_are_kept(there: ControlPlane, tmp_path: Path) -> None:
    wish = a_wish(tmp_path, there)
    setup.make(wish, echo=print)
    path = tmp_path / "perfci.toml"
    changed = path.read_text() + '[suite.x]\nrepo = "."\nrun = "true"\n'
    path.write_text(changed)
    found = setup.make(wish, echo=print)
    assert path.read_text() == changed
    assert levels(found, "settings") == [Level.WARN]
    assert (tmp_path / "perfci.toml.new").is_file()


@pytest.mark.parametrize("system", [True, False])
def test_systemd_takes_the_unit(tmp_path: Path, system: bool) -> None:
    (tmp_path / "worker" / "bin").mkdir(parents=True)
    program = tmp_path / "worker" / "bin" / "perfci"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = tmp_path / units.NAME
    path.write_text(units.text(tmp_path, node="gpu-a", user="root" if system else "", system=system))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, str(path) in done.stderr) == (0, False), done.stderr


# ------------------------------------------------------------------------------------------- users


# An ordinary user cannot make users. In CI it fails instead of being left out.
@pytest.mark.skipif(os.geteuid() != 0 and not CI, reason="makes users: needs root")
def test_the_two_users_are_made_once_and_the_worker_may_become_the_subject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Users(f"perfci-u-{os.getpid()}", f"perfci-v-{os.getpid()}")
    a_sudo(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    try:
        for _ in range(2):
            assert not findings.failed(users.make(wanted, sudoers=tmp_path))
        rule = tmp_path / "perfci"
        assert rule.read_text() == f"{wanted.worker} ALL=({wanted.subject}) NOPASSWD: ALL\n"
        assert stat.S_IMODE(rule.stat().st_mode) == 0o440
        assert pwd.getpwnam(wanted.subject).pw_gid in os.getgrouplist(wanted.worker, pwd.getpwnam(wanted.worker).pw_gid)
        assert pwd.getpwnam(wanted.worker).pw_gid not in os.getgrouplist(
            wanted.subject, pwd.getpwnam(wanted.subject).pw_gid
        )
        users.own(tmp_path / "state", wanted.worker, mode=0o755)
        assert (tmp_path / "state").stat().st_uid == pwd.getpwnam(wanted.worker).pw_uid
    finally:
        for name in (wanted.worker, wanted.subject):
            subprocess.run(["userdel", name], check=False, capture_output=True)
