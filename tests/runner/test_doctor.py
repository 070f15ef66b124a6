"""`perfci doctor` says what is wrong, on either side, and what to do about it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from perfci import config, measure
from perfci.commands import doctor as command
from perfci.runner import doctor, installed, keys, roster
from perfci.runner.findings import Finding, Level
from perfci.runner.installed import Installed
from perfci.store import schema
from tests.runner.edge import NOW

NOWHERE = "http://127.0.0.1:9"


def found(folder: Path, text: str) -> dict[str, Finding]:
    """The worst of each kind."""
    (folder / "perfci.toml").write_text(text)
    order = list(Level)
    kinds: dict[str, Finding] = {}
    for finding in sorted(doctor.examine(config.load(folder / "perfci.toml")), key=lambda f: order.index(f.level)):
        kinds[finding.what] = finding
    return kinds


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / installed.FILE).write_text(Installed("gpu-a", "here", "here", 1, sys.executable).text())
    return tmp_path


NODE = f'[service]\nexecutor = "EdgeExecutor"\nserver = "{NOWHERE}"\nairflow_url = "{NOWHERE}"\n'


def test_a_node_that_reaches_nobody_is_told_each_reason(node: Path) -> None:
    said = found(node, NODE)
    assert said["node"].level is Level.OK
    for what in ("server", "airflow", "key", "worker"):
        assert said[what].level is Level.FAIL, str(said[what])
        assert said[what].next_step
    assert "does not answer" in said["server"].text
    assert "there is none at" in said["key"].text
    assert said["worker"].text == "it does not run"


def test_a_key_that_others_can_read_is_told(node: Path) -> None:
    (node / "perfci.toml").write_text(NODE)
    key = installed.key_file(config.load(node / "perfci.toml"))
    keys.private(key)
    key.chmod(0o644)
    assert "can be read by others" in found(node, NODE)["key"].text


def test_a_runner_and_a_subject_that_are_not_there_are_told(node: Path) -> None:
    said = found(node, f'{NODE}runner = "/no/such/python"\nsubject = "no-such-user"\n')
    assert "no-such-user" in said["subject"].text
    assert said["runner"].level is Level.FAIL
    said = found(node, f'{NODE}runner = "/no/such/python"\n')
    assert "/no/such/python" in said["runner"].text


def test_a_new_control_plane_is_told_what_it_lacks(tmp_path: Path) -> None:
    text = (
        f'[service]\nexecutor = "EdgeExecutor"\nserver = "{NOWHERE}"\nairflow_port = 9\nserver_port = 9\n'
        '[hardware.h200]\nqueue = "h200"\n'
    )
    said = found(tmp_path, text)
    assert "perfci db upgrade" in str(said["database"])
    assert "nothing listens on 127.0.0.1:9" in said["airflow"].text
    assert "nothing listens on 127.0.0.1:9" in said["server"].text
    assert "perfci nodes add" in str(said["nodes"])


def test_what_is_well_is_told_as_well(tmp_path: Path) -> None:
    (tmp_path / "perfci.toml").write_text("")
    settings = config.load(tmp_path / "perfci.toml")
    measure.prepare(settings)
    schema.upgrade(settings.database_url)
    roster.add(
        settings.nodes, "a", json.dumps(keys.public_jwk(keys.private(tmp_path / "k" / "k.pem"))), replace=False, now=NOW
    )
    said = found(tmp_path, "[service]\nairflow_port = 9\n")
    assert said["database"].level is Level.OK
    assert said["disk"].level is not Level.FAIL
    assert "server" not in said, "there is no hand-over to ask for"


def test_secrets_that_others_can_read_are_told(tmp_path: Path) -> None:
    secret = tmp_path / ".perfci" / "secrets" / "handover.key"
    secret.parent.mkdir(parents=True)
    secret.write_text("x")
    secret.chmod(0o644)
    assert str(secret) in found(tmp_path, "[service]\nairflow_port = 9\n")["secrets"].text


def test_programs_read_it_as_json_and_by_its_exit_code(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (node / "perfci.toml").write_text(NODE)
    monkeypatch.setenv("PERFCI_CONFIG", str(node / "perfci.toml"))
    app = typer.Typer()
    command.register(app)
    done = CliRunner().invoke(app, ["--json"])
    assert done.exit_code == 2
    body = json.loads(done.output)
    assert {"what", "level", "text", "next_step"} == set(body[0])
    assert {entry["level"] for entry in body} >= {"ok", "fail"}
