"""What a node is let do for one job: fetch its sources, hand over its results.

The token is a JWT (HS256) that the control plane alone makes and reads. It names the job, so that it opens nothing
else, and its moments are those of the control plane: a node's clock plays no part.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from perfci import secrets_file
from perfci.bench import bundle, source
from perfci.bench.git import without_credentials
from perfci.config import Settings
from perfci.errors import ServiceError

AUDIENCE = "perfci-job"
LIFETIME_S = 48 * 3600.0
_ALGORITHM = "HS256"
_REPLAN = "plan the job again, which makes a new token"


class TokenRefused(ServiceError):
    """Not made here, damaged, or too old."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """One job: processes `first_index` to `first_index + runs - 1` of a session. bundle: sha256 of its sources."""

    suite: str
    sha: str
    hardware: str
    session: str
    first_index: int
    runs: int
    position: int | None
    bundle: str
    expires_at: datetime

    @property
    def indexes(self) -> range:
        return range(self.first_index, self.first_index + self.runs)


def granted(
    job: Mapping[str, Any], settings: Settings, *, now: datetime, lifetime_s: float = LIFETIME_S
) -> dict[str, Any]:
    """The job with what its node needs where results are handed over through a server; otherwise as it was.

    Makes the source bundle, and takes the repository's credentials out of the job.
    Raises SourceError, ServiceError.
    """
    if not settings.service.server:
        return dict(job)
    suite = settings.suite(str(job["suite"]))
    mirror = source.mirror(
        str(job["repository"]), settings.cache, needs=str(job["sha"]), key=source.deploy_key(settings, suite)
    )
    made = bundle.make(mirror, str(job["sha"]), suite.files, settings.bundles)
    full = {
        **job,
        "repository": without_credentials(str(job["repository"])),
        "server": settings.service.server.rstrip("/"),
        "bundle": {"sha256": made.sha256, "bytes": made.bytes},
    }
    return full | {"token": mint(signing_key(settings), full, now=now, lifetime_s=lifetime_s)}


def signing_key(settings: Settings) -> bytes:
    """Made once; whoever has it can hand over any result. Raises ServiceError."""
    return secrets_file.kept(settings.secrets / "handover.key", lambda: secrets.token_hex(32).encode())


def mint(key: bytes, job: Mapping[str, Any], *, now: datetime, lifetime_s: float = LIFETIME_S) -> str:
    jwt = _jwt()
    issued = int(now.timestamp())
    claims = {
        "aud": AUDIENCE,
        "iat": issued,
        "exp": issued + int(lifetime_s),
        "suite": str(job["suite"]),
        "sha": str(job["sha"]),
        "hardware": str(job["hardware"]),
        "session": str(job["session"]),
        "first_index": int(job["first_index"]),
        "runs": int(job["runs"]),
        "position": job.get("position"),
        "bundle": str(job["bundle"]["sha256"]) if "bundle" in job else "",
    }
    return str(jwt.encode(claims, key, algorithm=_ALGORITHM))


def verify(key: bytes, token: str, *, now: datetime) -> Grant:
    """Raises TokenRefused."""
    jwt = _jwt()
    # The moments are judged below, by `now`: the library would ask the clock, and refuse what was made in its future.
    unjudged = {"verify_exp": False, "verify_iat": False, "verify_nbf": False, "require": ["exp", "aud"]}
    try:
        claims = jwt.decode(token, key, algorithms=[_ALGORITHM], audience=AUDIENCE, options=unjudged)
    except jwt.PyJWTError as error:
        raise TokenRefused(f"this is no token of a job here ({error})", next_step=_REPLAN) from error
    try:
        grant = _grant(claims)
    except (KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        raise TokenRefused(f"the token lacks what a job's has ({error!r})", next_step=_REPLAN) from error
    if now >= grant.expires_at:
        ended = grant.expires_at.strftime("%Y-%m-%d %H:%M:%S UTC")
        raise TokenRefused(f"the job's token ended at {ended}", next_step=_REPLAN)
    return grant


def _grant(claims: Mapping[str, Any]) -> Grant:
    position = claims["position"]
    return Grant(
        suite=str(claims["suite"]),
        sha=str(claims["sha"]),
        hardware=str(claims["hardware"]),
        session=str(claims["session"]),
        first_index=int(claims["first_index"]),
        runs=int(claims["runs"]),
        position=None if position is None else int(position),
        bundle=str(claims["bundle"]),
        expires_at=datetime.fromtimestamp(int(claims["exp"]), UTC),
    )


def _jwt() -> Any:
    try:
        import jwt  # noqa: PLC0415 - the control plane's alone
    except ModuleNotFoundError as error:
        raise ServiceError("PyJWT is not installed here", next_step="pip install 'perfci[serve]'") from error
    return jwt
