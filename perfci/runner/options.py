"""airflow.cfg of the edge worker, and the environment that it starts in: neither has a secret or a database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import perfci
from perfci import share
from perfci.bench import process
from perfci.config import Settings
from perfci.runner import installed, keys
from perfci.runner.installed import Installed

# A file that names an executor of a task must find it listed, wherever it is parsed.
_EXECUTORS = "LocalExecutor,edge:airflow.providers.edge3.executors.EdgeExecutor"
_HEARTBEAT_S, _POLL_S = 10, 5
# Of tokens; the control plane allows for a clock that is wrong.
_TOKEN_S = 60


def airflow_cfg(settings: Settings, node: Installed) -> str:
    url = settings.service.airflow_url.rstrip("/")
    home = installed.airflow_home(settings)
    sections: Mapping[str, Mapping[str, object]] = {
        "core": {
            "executor": _EXECUTORS,
            "dags_folder": share.folder("dags"),
            "load_examples": False,
            "plugins_folder": home / "plugins",
            "execution_api_server_url": f"{url}/execution/",
        },
        "edge": {
            "api_url": f"{url}/edge_worker/v1/rpcapi",
            "heartbeat_interval": _HEARTBEAT_S,
            "job_poll_interval": _POLL_S,
        },
        "api_auth": {
            # Empty on purpose: what signs the server's tokens is no node's to have.
            "jwt_secret": "",
            "jwt_private_key_path": installed.key_file(settings),
            "jwt_kid": node.name,
            "jwt_issuer": keys.ISSUER,
            "jwt_leeway": _TOKEN_S,
        },
        "logging": {"base_log_folder": home / "logs"},
        # A measurement outlives a server that is away for some minutes: asked again often, and never killed for it.
        "workers": {"execution_api_retries": 30, "execution_api_retry_wait_max": 10, "max_failed_heartbeats": 100},
        "usage_data_collection": {"enabled": False},
    }
    lines = ["# Written by perfci at every start of the worker."]
    for section, values in sections.items():
        lines += ["", f"[{section}]"]
        lines += [f"{name} = {str(value).replace('%', '%%')}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def environment(settings: Settings, node: Installed, *, config_path: Path, given: Mapping[str, str]) -> dict[str, str]:
    """All that the worker and its jobs see. given: the caller's environment, of which little is kept."""
    library = Path(perfci.__file__).resolve().parents[1]
    dags = share.folder("dags").parent
    return process.scrubbed(given, network=True) | {
        "AIRFLOW_HOME": str(installed.airflow_home(settings)),
        # The worker asks for as long as it takes; ending it is `perfci runner start`'s business.
        "AIRFLOW__EDGE__API_RETRIES": "100000",
        "AIRFLOW__EDGE__API_RETRY_WAIT_MAX": "15",
        "PERFCI_CONFIG": str(config_path),
        "PERFCI_NODE": node.name,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys((str(library), str(dags)))),
        "PYTHONUNBUFFERED": "1",
        # A process that renames itself must not overwrite its environment: the mark of its tree is in there.
        "SPT_NOENV": "1",
        **{key: given[key] for key in ("PERFCI_IMAGE", "PERFCI_LOG") if key in given},
    }
