"""Where the hosts' files lie: DAGs, pages and migrations are no part of the library, but travel with it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from perfci.errors import ServiceError

Shared = Literal["dags", "dashboard", "migrations"]


def folder(name: Shared) -> Path:
    """The folder `name`; its parent on PYTHONPATH makes the packages in it importable.

    An installed wheel has it at perfci/share/, a checkout beside perfci/. Raises ServiceError when it is in neither.
    """
    library = Path(__file__).resolve().parent
    candidates = (library / "share" / name, library.parent / name)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise ServiceError(
        f"the folder {name!r} is neither at {candidates[0]} nor at {candidates[1]}", next_step="install perfci again"
    )
