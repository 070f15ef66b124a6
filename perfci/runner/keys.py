"""Ed25519 keys and what they sign: a node's tokens, and those that the control plane makes of them.

A token is a JWT as Airflow's edge worker makes it: the key's id in its header is the node's name.
"""

from __future__ import annotations

import base64
import json
import sys
import uuid
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from perfci.secrets_file import kept

ISSUER = "perfci-edge"
AUDIENCE = "api"
ALGORITHM = "EdDSA"


def private(path: Path) -> bytes:
    """The private key in `path` as PEM; made now where there is none. Raises ServiceError."""
    return kept(path, _new)


def public_jwk(pem: bytes) -> dict[str, str]:
    """The public half of a private key."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  the core has no cryptography

    key = serialization.load_pem_private_key(pem, password=None).public_key()
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return {"kty": "OKP", "crv": "Ed25519", "x": base64.urlsafe_b64encode(raw).rstrip(b"=").decode()}


def sign(pem: bytes, *, kid: str, place: str, now: datetime, lifetime_s: float, subject: str = "") -> str:
    """A token for one place of the edge API, e.g. `worker/gpu-a`. subject: whom the signer vouches for."""
    import jwt  # noqa: PLC0415  the core has no PyJWT

    at = int(now.timestamp())
    claims: dict[str, Any] = {
        "jti": uuid.uuid4().hex,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": at,
        "nbf": at,
        "exp": at + int(lifetime_s),
        "method": place,
    }
    return jwt.encode(claims | ({"sub": subject} if subject else {}), pem, algorithm=ALGORITHM, headers={"kid": kid})


def checked(token: str, jwk: Mapping[str, str], *, leeway_s: float) -> dict[str, Any] | None:
    """The claims of a token that this key has signed and that is of its time; None for any other."""
    import jwt  # noqa: PLC0415

    try:
        return dict(
            jwt.decode(
                token,
                jwt.PyJWK.from_dict({**jwk, "alg": ALGORITHM}),
                algorithms=[ALGORITHM],
                audience=AUDIENCE,
                issuer=ISSUER,
                leeway=leeway_s,
                options={"require": ["exp", "iat"]},
            )
        )
    except jwt.PyJWTError:
        return None


def key_id(token: str) -> str:
    """As the token's header says, which anybody may have written; empty where it says none."""
    import jwt  # noqa: PLC0415

    try:
        kid = jwt.get_unverified_header(token).get("kid", "")
    except jwt.PyJWTError:
        return ""
    return kid if isinstance(kid, str) else ""


def keys_file_text(pem: bytes, kid: str) -> str:
    """A key set (RFC 7517) of one key."""
    return json.dumps({"keys": [{**public_jwk(pem), "kid": kid, "alg": ALGORITHM, "use": "sig"}]}, indent=1) + "\n"


def _new() -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    return ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def main(path: Path) -> None:
    """For `perfci runner setup`, in the worker's environment: the key's public half on the standard output."""
    sys.stdout.write(json.dumps(public_jwk(private(path))) + "\n")
