"""What `perfci runner setup` leaves in a node's folder beside perfci.toml: who this node is.

FOLDER/
    perfci.toml      hardware, queue, the server, runner and subject
    node.json        this
    NAME.key.json    the public key, for `perfci nodes add` on the control plane
    worker/          environment of the edge worker, which also builds and measures
    runner/          environment of what is measured
    airflow/         AIRFLOW_HOME of the worker
    .perfci/         state: the private key, caches, work folders, results on their way
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perfci.config import Settings
from perfci.errors import ServiceError
from perfci.runner.roster import check_name

FILE = "node.json"


@dataclass(frozen=True, slots=True)
class Installed:
    """slots: devices of this box, and so the jobs that may run at once. worker: Python of the worker's environment."""

    name: str
    hardware: str
    queue: str
    slots: int
    worker: str

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"


def here(settings: Settings) -> Installed | None:
    """The node of this folder; None where there is none. Raises ServiceError for a record that cannot be read."""
    path = settings.root / FILE
    if not path.exists():
        return None
    try:
        body = json.loads(path.read_text("utf-8"))
        found = Installed(**{**body, "slots": int(body["slots"])})
        check_name(found.name)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ServiceError(f"{path} cannot be used ({error})", next_step="run `perfci runner setup` again") from error
    return found


def required(settings: Settings) -> Installed:
    """Raises ServiceError where this folder is no node's."""
    found = here(settings)
    if found is None:
        raise ServiceError(
            f"{settings.root} is no node's folder (it has no {FILE})",
            next_step="run `perfci runner setup` first, or name its perfci.toml with --config",
        )
    return found


def key_file(settings: Settings) -> Path:
    """The private key."""
    return settings.secrets / "node.pem"


def public_key_file(settings: Settings, node: Installed) -> Path:
    return settings.root / f"{node.name}.key.json"


def public_text(jwk: Mapping[str, str]) -> str:
    """Of the public key's file."""
    return json.dumps(jwk, indent=1) + "\n"


def airflow_home(settings: Settings) -> Path:
    return settings.root / "airflow"
