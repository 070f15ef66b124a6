"""What every process that is started here finds in its environment."""

from __future__ import annotations

import os
from pathlib import Path

from perfci import share
from perfci.config import FILE_NAME, Settings
from perfci.embedded.ports import LOOPBACK


def inherited(settings: Settings) -> dict[str, str]:
    """The caller's environment without its own Airflow, with these settings and all packages importable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "_AIRFLOW"))}
    return kept | {
        "PERFCI_CONFIG": str(_config_file(settings)),
        "PYTHONPATH": _import_path(),
        "NO_PROXY": _no_proxy(settings),
        "no_proxy": _no_proxy(settings),
        # A process that renames itself must not overwrite its environment: the mark of its tree is in there.
        "SPT_NOENV": "1",
    }


def _config_file(settings: Settings) -> Path:
    """Settings know their folder; PERFCI_CONFIG may have given the file another name."""
    explicit = os.environ.get("PERFCI_CONFIG")
    if explicit and Path(explicit).resolve().parent == settings.root:
        return Path(explicit).resolve()
    return settings.root / FILE_NAME


def _import_path() -> str:
    library = Path(__file__).resolve().parents[2]
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(str(p) for p in (library, share.folder("dags").parent, *before) if str(p)))


def _no_proxy(settings: Settings) -> str:
    before = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    own = (LOOPBACK, "localhost", settings.service.bind)
    return ",".join(dict.fromkeys([*filter(None, before.split(",")), *own]))
