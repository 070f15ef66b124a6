"""A node speaks for itself alone, and only as long as its key is known."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest

from perfci import __version__
from perfci.runner import binding, keys, roster
from tests.runner.edge import Gate

NAMED = (
    ("POST", "worker/gpu-a"),
    ("PATCH", "worker/gpu-a"),
    ("PATCH", "worker/queues/gpu-a"),
    ("POST", "jobs/fetch/gpu-a"),
    ("GET", "perfci/gpu-a"),
)
UNNAMED = (
    ("PATCH", "jobs/state/nightly/h200.build/manual__2027-01-15T02:00:00+00:00/1/-1/running"),
    ("GET", "logs/logfile_path/nightly/plan/r/1/-1"),
    ("POST", "logs/push/nightly/plan/r/1/-1"),
)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.mark.parametrize(("method", "place"), NAMED + UNNAMED)
def test_a_node_may_do_what_a_worker_does(gate: Gate, method: str, place: str) -> None:
    assert gate.ask_as(gate.new_key("gpu-a"), "gpu-a", method, place).status_code == 200


@pytest.mark.parametrize(("method", "place"), NAMED)
def test_a_node_cannot_speak_for_another(gate: Gate, method: str, place: str) -> None:
    gate.new_key("gpu-a")
    answer = gate.ask_as(gate.new_key("gpu-b"), "gpu-b", method, place)
    assert answer.status_code == 403
    assert "gpu-b speaks for itself, not for 'gpu-a'" in answer.json()["detail"]


def test_a_key_that_calls_itself_by_another_name_is_refused(gate: Gate) -> None:
    gate.new_key("gpu-a")
    assert gate.ask_as(gate.new_key("gpu-b"), "gpu-a", "POST", "worker/gpu-a").status_code == 403


def test_a_node_that_is_taken_away_is_refused_at_once(gate: Gate) -> None:
    key = gate.new_key("gpu-a")
    assert gate.ask_as(key, "gpu-a", "POST", "jobs/fetch/gpu-a").status_code == 200
    roster.remove(gate.nodes, "gpu-a")
    answer = gate.ask_as(key, "gpu-a", "POST", "jobs/fetch/gpu-a")
    assert answer.status_code == 403
    assert "perfci nodes add" in answer.json()["detail"]


def test_a_node_that_is_added_works_without_a_restart(gate: Gate) -> None:
    key = gate.new_key("gpu-a", known=False)
    assert gate.ask_as(key, "gpu-a", "POST", "worker/gpu-a").status_code == 403
    gate.new_key("gpu-a")
    assert gate.ask_as(key, "gpu-a", "POST", "worker/gpu-a").status_code == 200


def test_airflow_sees_the_gateways_token_and_never_the_nodes(gate: Gate) -> None:
    key = gate.new_key("gpu-a")
    seen = gate.ask_as(key, "gpu-a", "POST", "worker/gpu-a").json()["token"]
    trusted = jwt.PyJWKSet.from_dict(json.loads((gate.nodes / "jwks.json").read_text()))
    assert len(trusted.keys) == 1
    claims = jwt.decode(
        seen, trusted[jwt.get_unverified_header(seen)["kid"]], ["EdDSA"], audience="api", issuer="perfci-edge"
    )
    assert (claims["sub"], claims["method"]) == ("gpu-a", "worker/gpu-a")
    assert keys.checked(seen, keys.public_jwk(key), leeway_s=0) is None


def test_a_clock_that_is_ten_minutes_off_does_not_stop_a_node(gate: Gate) -> None:
    key = gate.new_key("gpu-a")
    for minutes in (-10, 10):
        at = datetime.now(UTC) + timedelta(minutes=minutes)
        answer = gate.ask_as(key, "gpu-a", "POST", "worker/gpu-a", now=at)
        assert answer.status_code == 200
        claims = jwt.decode(answer.json()["token"], options={"verify_signature": False})
        assert abs(claims["iat"] - datetime.now(UTC).timestamp()) < 60


def test_a_clock_that_is_an_hour_off_is_told(gate: Gate) -> None:
    key = gate.new_key("gpu-a")
    for hours in (-1, 1):
        at = datetime.now(UTC) + timedelta(hours=hours)
        answer = gate.ask_as(key, "gpu-a", "POST", "worker/gpu-a", now=at)
        assert answer.status_code == 403
        assert "15 minutes off" in answer.json()["detail"]


def test_a_token_opens_the_place_that_it_was_signed_for_alone(gate: Gate) -> None:
    key = gate.new_key("gpu-a")
    answer = gate.ask_as(key, "gpu-a", "POST", "jobs/fetch/gpu-a", signed_for="worker/gpu-a")
    assert answer.status_code == 403


@pytest.mark.parametrize("token", [None, "", "x", "a.b.c", "Bearer " + "x" * 5000])
def test_what_is_no_token_is_refused(gate: Gate, token: str | None) -> None:
    assert gate.ask("POST", "/edge_worker/v1/worker/gpu-a", token=token).status_code == 403


def test_tokens_of_another_kind_are_refused(gate: Gate) -> None:
    gate.new_key("gpu-a")
    x = roster.listed(gate.nodes)[0].x
    claims = {"iss": "perfci-edge", "aud": "api", "iat": datetime.now(UTC), "exp": datetime.now(UTC) + timedelta(60)}
    claims["method"] = "worker/gpu-a"  # type: ignore[assignment]
    by_public_key = jwt.encode(claims, x.ljust(64, "x"), algorithm="HS512", headers={"kid": "gpu-a"})
    unsigned = jwt.encode(claims, None, algorithm="none", headers={"kid": "gpu-a"})
    for token in (by_public_key, unsigned):
        assert gate.ask("POST", "/edge_worker/v1/worker/gpu-a", token=token).status_code == 403


@pytest.mark.parametrize("kid", ["../secrets/gateway", "jwks", "", "perfci-gateway", "gpu-a\0", "a" * 300])
def test_no_name_leads_to_another_file(gate: Gate, kid: str) -> None:
    key = gate.new_key("gpu-a")
    assert gate.ask_as(key, kid, "POST", "worker/gpu-a").status_code == 403


def test_what_is_not_the_edge_api_passes_untouched(gate: Gate) -> None:
    answer = gate.ask("GET", "/api/v2/dags", token="Bearer somebody's")
    assert answer.json() == {"path": "/api/v2/dags", "token": "Bearer somebody's"}
    assert gate.ask("GET", "/edge_worker/v1/health").status_code == 200


def test_a_node_can_ask_whether_it_is_known(gate: Gate) -> None:
    answer = gate.ask_as(gate.new_key("gpu-a"), "gpu-a", "GET", "perfci/gpu-a")
    assert answer.json() == {"node": "gpu-a", "version": __version__}


def test_the_gateways_key_is_readable_by_its_owner_alone_and_kept(gate: Gate, tmp_path: Path) -> None:
    path = gate.nodes.parent / "secrets" / "gateway.pem"
    before = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    Gate(tmp_path)
    assert path.read_bytes() == before


def test_every_path_of_the_installed_edge_api_that_names_a_worker_is_bound(tmp_path: Path) -> None:
    listing = (
        "import json; from airflow.providers.edge3.worker_api.app import create_edge_worker_api_app as make\n"
        "paths = [r.path for r in make().routes if r.path.startswith('/v1/')]\n"
        "routers = [p for p in make().openapi()['paths'] if p.startswith('/v1/')]\n"
        "print('PATHS', json.dumps(sorted(set(paths + routers))))"
    )
    home = {**os.environ, "AIRFLOW_HOME": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", listing], env=home, capture_output=True, text=True, check=True).stdout
    paths = json.loads(next(line for line in said.splitlines() if line.startswith("PATHS")).removeprefix("PATHS"))
    named = [path.removeprefix("/v1/") for path in paths if "{worker_name}" in path]
    assert len(named) >= 3
    assert [binding._worker(path) for path in named] == ["{worker_name}"] * len(named)
