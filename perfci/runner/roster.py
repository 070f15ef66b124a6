"""The nodes that may work here: a file with a public key for each, below the state folder of the control plane.

A key's file is read at each request, so that a node which is taken away is refused at once, without a restart.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfci.errors import ServiceError, SettingsError

# The keys file that Airflow reads lies in the same folder; see `binding`.
KEYS_FILE = "jwks.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_LARGEST_FILE = 10_000
_KEY_BYTES = 32  # Ed25519


@dataclass(frozen=True, slots=True)
class Node:
    """x: the public key, as RFC 8037 writes it. added_at: when this control plane got to know it."""

    name: str
    x: str
    added_at: datetime

    @property
    def jwk(self) -> dict[str, str]:
        return {"kty": "OKP", "crv": "Ed25519", "x": self.x}


def check_name(name: str) -> str:
    """It is part of URLs and of file names. Raises SettingsError."""
    if not _NAME.fullmatch(name) or f"{name}.json" == KEYS_FILE:
        raise SettingsError(
            f"{name[:80]!r} is no usable name of a node", next_step="use up to 63 letters, digits, '-', '_' and '.'"
        )
    return name


def find(nodes: Path, name: str) -> Node | None:
    """None for a name that is not known, or not usable."""
    if not _NAME.fullmatch(name) or f"{name}.json" == KEYS_FILE:
        return None
    try:
        return _node(name, _body(nodes / f"{name}.json"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def listed(nodes: Path) -> tuple[Node, ...]:
    """By name."""
    names = (path.stem for path in nodes.glob("*.json") if path.name != KEYS_FILE)
    return tuple(node for name in sorted(names) if (node := find(nodes, name)))


def add(nodes: Path, name: str, key_text: str, *, replace: bool, now: datetime) -> Node:
    """key_text: what `perfci runner setup` wrote into the node's key file.

    Adding the same key again changes nothing. Raises SettingsError for a name that another key has, unless `replace`,
    for a key that another name has, and for what is no public key; ServiceError when it cannot be written.
    """
    node = Node(check_name(name), _public_key(key_text), now)
    for known in listed(nodes):
        if known.name == name and known.x == node.x:
            return known
        if known.x == node.x:
            raise SettingsError(
                f"node {known.name!r} has this key already", next_step="make one for each node: perfci runner setup"
            )
        if known.name == name and not replace:
            raise SettingsError(
                f"node {name!r} has another key",
                next_step="add --replace if it was set up anew",
            )
    body = {**node.jwk, "added_at": now.astimezone(UTC).isoformat()}
    write(nodes / f"{name}.json", json.dumps(body, indent=1) + "\n")
    return node


def remove(nodes: Path, name: str) -> None:
    """From now on it is refused. Raises SettingsError for a name that is not known."""
    path = nodes / f"{check_name(name)}.json"
    try:
        path.unlink()
    except FileNotFoundError as error:
        known = ", ".join(node.name for node in listed(nodes)) or "none"
        raise SettingsError(f"no node named {name!r}", next_step=f"known: {known}") from error
    except OSError as error:
        raise ServiceError(f"{path}: {error.strerror}", next_step="make it writable") from error


def _public_key(text: str) -> str:
    """The one member of a JWK that matters, checked. Nothing of a private key is ever taken."""
    try:
        body = json.loads(text)
        if not isinstance(body, dict) or body.get("kty") != "OKP" or body.get("crv") != "Ed25519":
            raise ValueError("it is no Ed25519 key")
        if "d" in body:
            raise ValueError("it is a private key, which never leaves its node")
        x = str(body["x"])
        if len(base64.b64decode(x + "=", altchars=b"-_", validate=True)) != _KEY_BYTES:
            raise ValueError("it has the wrong length")
    except (ValueError, KeyError, RecursionError, binascii.Error) as error:
        raise SettingsError(
            f"this is no node's public key ({error})", next_step="give the file that `perfci runner setup` has named"
        ) from error
    return x


def _node(name: str, body: Mapping[str, Any]) -> Node:
    return Node(name, str(body["x"]), datetime.fromisoformat(body["added_at"]))


def _body(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        body = json.loads(stream.read(_LARGEST_FILE))
    if not isinstance(body, dict):
        raise ValueError(f"{path} holds no object")
    return body


def write(path: Path, text: str) -> None:
    """Whole or not at all; readable by all. Raises ServiceError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, new = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "w") as stream:
                stream.write(text)
                os.fchmod(stream.fileno(), 0o644)
            Path(new).replace(path)
        except OSError:
            Path(new).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ServiceError(
            f"{error.filename or path}: {error.strerror}", next_step="make room and make it writable"
        ) from error
