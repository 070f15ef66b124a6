"""What a token opens, and for how long: the control plane's clock alone decides."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci import grants
from perfci.grants import TokenRefused
from perfci.serve.access import access
from perfci.serve.refusals import Refusal
from tests.build import a_sha
from tests.serve.place import Served, a_job, a_result, put

NOW = datetime(2026, 12, 1, 2, 0, tzinfo=UTC)
KEY = b"k" * 64


def test_a_token_says_which_job_it_is_of() -> None:
    job = a_job(bundle={"sha256": "b" * 64, "bytes": 7})
    grant = grants.verify(KEY, grants.mint(KEY, job, now=NOW, lifetime_s=60), now=NOW)
    assert (grant.suite, grant.sha, grant.hardware, grant.session) == (
        *(job["suite"], job["sha"]),
        *(job["hardware"], job["session"]),
    )
    assert (list(grant.indexes), grant.position, grant.bundle) == ([0, 1, 2], 1, "b" * 64)
    assert grant.expires_at == NOW + timedelta(seconds=60)


def test_a_token_lives_two_days_and_its_end_is_told() -> None:
    token = grants.mint(KEY, a_job(), now=NOW)
    grants.verify(KEY, token, now=NOW + timedelta(hours=48, seconds=-1))
    with pytest.raises(TokenRefused, match="ended at 2026-12-03 02:00:00 UTC"):
        grants.verify(KEY, token, now=NOW + timedelta(hours=48))


def test_a_token_of_a_moment_that_is_yet_to_come_is_good() -> None:
    """The control plane's clock was set back."""
    token = grants.mint(KEY, a_job(), now=NOW + timedelta(minutes=10))
    assert grants.verify(KEY, token, now=NOW).session == "night-1"


def unsigned(claims: dict[str, Any]) -> str:
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts) + "."


def claims(**changed: Any) -> dict[str, Any]:
    made: dict[str, Any] = jwt.decode(grants.mint(KEY, a_job(), now=NOW), options={"verify_signature": False})
    return {name: value for name, value in (made | changed).items() if value is not ...}


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        unsigned(claims()),
        grants.mint(b"o" * 64, a_job(), now=NOW),
        grants.mint(KEY, a_job(), now=NOW)[:-4] + "AAAA",
        jwt.encode(claims(), KEY, algorithm="HS512"),
        jwt.encode(claims(aud="apache-airflow"), KEY, algorithm="HS256"),
        jwt.encode(claims(aud=...), KEY, algorithm="HS256"),
        jwt.encode(claims(exp=...), KEY, algorithm="HS256"),
        jwt.encode(claims(suite=...), KEY, algorithm="HS256"),
        jwt.encode(claims(runs="many"), KEY, algorithm="HS256"),
        jwt.encode(claims(exp=10**18), KEY, algorithm="HS256"),
    ],
)
def test_what_was_not_made_here_opens_nothing(token: str) -> None:
    with pytest.raises(TokenRefused):
        grants.verify(KEY, token, now=NOW)


@given(st.text(max_size=200))
def test_no_text_is_a_token(text: str) -> None:
    with pytest.raises(TokenRefused):
        grants.verify(KEY, text, now=NOW)


@pytest.mark.parametrize(
    ("token", "told"),
    [
        ("", "token is needed"),
        ("garbage", "no token of a job"),
        ("expired", "ended at"),
    ],
)
def test_without_a_good_token_nothing_is_taken(running: Served, token: str, told: str) -> None:
    job = running.job()
    if token == "expired":
        token = running.token(job, now=datetime.now(UTC) - timedelta(hours=48, minutes=1))
    with running.client(token) as client:
        for answer in (put(client, a_result(job)), client.get("/v1/artifacts"), client.get(f"/v1/bundles/{'0' * 64}")):
            assert answer.status_code == 401
            assert told in answer.json()["error"]
            assert "Bearer" in answer.headers["www-authenticate"]
        assert client.head(f"/v1/artifacts/{'0' * 64}").status_code == 401
    assert running.incoming(job) == []


def test_a_token_is_good_for_its_own_job_alone(running: Served) -> None:
    job, other = running.job(), running.job(sha=a_sha(2))
    with running.client(other["token"]) as client:
        assert put(client, a_result(job)).status_code == 422
    with running.client(job["token"]) as client:
        assert put(client, a_result(job)).status_code == 201
    with running.client(other["token"]) as client:
        assert client.get("/v1/artifacts").json() == {"artifacts": []}


def test_the_secrets_are_made_once_and_for_their_owner_alone(running: Served) -> None:
    folder = running.settings.secrets
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "handover.key": 0o600,
        "reader.token": 0o600,
    }


def reader(running: Served, *, peer: str = "127.0.0.1", **headers: str) -> None:
    """Ask for what is stored, from an address with headers."""
    from starlette.requests import HTTPConnection

    told = {"host": "127.0.0.1:8090", **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = [(name.encode(), value.encode()) for name, value in told.items() if value]
    scope = {"type": "http", "headers": raw, "client": (peer, 5)}
    access(running.settings, now=lambda: NOW).check_reader(HTTPConnection(scope))


@pytest.mark.parametrize("host", ["localhost:8090", "127.0.0.1", "[::1]:8090", "localhost"])
@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "127.8.8.8"])
def test_who_sits_at_the_machine_may_read(running: Served, peer: str, host: str) -> None:
    reader(running, peer=peer, host=host)


@pytest.mark.parametrize(
    "asked",
    [
        {"peer": "192.0.2.7"},
        {"peer": "192.0.2.7", "x_forwarded_for": "127.0.0.1"},
        {"x_forwarded_for": "127.0.0.1"},
        {"forwarded": "for=127.0.0.1"},
        {"via": "1.1 proxy"},
        {"host": "evil.example:8090"},
        {"host": "[::1"},
        {"host": ""},
        {"authorization": "Bearer wrong"},
        {"peer": "192.0.2.7", "authorization": "Bearer "},
        {"peer": ""},
    ],
)
def test_others_need_the_reader_s_token(running: Served, asked: dict[str, str]) -> None:
    with pytest.raises(Refusal, match="reader's token"):
        reader(running, **asked)
    token = (running.settings.secrets / "reader.token").read_text().strip()
    reader(running, **(asked | {"authorization": f"Bearer {token}"}))


def test_a_job_s_token_reads_nothing(running: Served) -> None:
    with running.client(running.job()["token"]) as client:
        assert client.get("/v1/results").status_code == 401


def test_a_job_stays_as_it_is_where_results_are_handed_over_in_a_folder(tmp_path: Path) -> None:
    from perfci.config import Settings

    assert grants.granted(a_job(), Settings(root=tmp_path), now=NOW) == a_job()
