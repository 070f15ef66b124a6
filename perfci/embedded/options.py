"""airflow.cfg: all of the embedded Airflow's settings, as sections of one file; and the plugin beside it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from perfci import queues, share
from perfci.config import Service, Settings
from perfci.embedded import home as homes
from perfci.embedded import plugin
from perfci.embedded.home import USER, Home

Sections = dict[str, dict[str, object]]

EDGE = "EdgeExecutor"
# As perfci.runner.keys signs.
EDGE_ISSUER = "perfci-edge"
EDGE_AUDIENCE = "api"
# In [core] the short name is not found, and the alias `edge` alone is not what a task may say.
_EDGE_PATH = "edge:airflow.providers.edge3.executors.EdgeExecutor"
# Measuring takes one; a worker that has ended a short step is not free again for five seconds.
PARALLELISM = 4
# A step whose process was killed, or whose node is gone, is given up after this long and tried again.
HEARTBEAT_LIMIT_S = 120
# A job may wait for its device behind others for twelve hours and is not stuck. Each half hour it is queued anew, since
# one that was lost between Airflow and its node would wait in vain.
_QUEUED_LIMIT_S, _QUEUED_AGAIN = 1800, 24


def write(settings: Settings, home: Home, *, port: int, scheduled: bool) -> None:
    """Make the folder, the secrets and the settings.

    scheduled: the schedule starts runs by itself; otherwise only what is triggered runs.
    Raises ServiceError. The caller holds the lock of the state folder.
    """
    try:
        kept = homes.make(home)
        homes.write_private(home.folder / "airflow.cfg", _text(settings, home, kept, port=port, scheduled=scheduled))
        if is_edge(settings.service):
            homes.write_private(home.plugins / plugin.FILE, plugin.text(settings.nodes.resolve()))
        else:
            (home.plugins / plugin.FILE).unlink(missing_ok=True)
    except OSError as error:
        raise homes.unwritable(home, error) from error


def is_edge(service: Service) -> bool:
    """Jobs are taken by edge workers on nodes."""
    return service.executor == EDGE


def reached_at(bind: str, port: int) -> str:
    """URL of what listens on `bind`, from this machine."""
    address = ipaddress.ip_address(bind)
    if address.is_unspecified:  # all addresses, so loopback among them
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://{address}:{port}" if address.version == 4 else f"http://[{address}]:{port}"


def _text(settings: Settings, home: Home, kept: Mapping[str, str], *, port: int, scheduled: bool) -> str:
    sections = _sections(settings, home, kept, port=port, scheduled=scheduled)
    if is_edge(settings.service):
        sections["edge"] = _edge(settings, port=port)
    lines = ["# Written by perfci at every start."]
    for section, values in sections.items():
        lines += ["", f"[{section}]"]
        lines += [f"{name} = {str(value).replace('%', '%%')}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def _sections(settings: Settings, home: Home, kept: Mapping[str, str], *, port: int, scheduled: bool) -> Sections:
    service, here = settings.service, reached_at(settings.service.bind, port)
    return {
        "core": {
            "executor": _executors(service),
            "dags_folder": share.folder("dags"),
            "plugins_folder": home.plugins,
            "load_examples": False,
            # Jobs of one queue a night; Airflow's own limit is 1,024, and a plan beyond it would fail as a whole.
            "max_map_length": 10_000,
            "parallelism": _parallelism(settings),
            "dags_are_paused_at_creation": False,
            "fernet_key": kept["fernet_key"],
            "simple_auth_manager_users": f"{USER}:admin",
            "simple_auth_manager_passwords_file": home.password_file,
            "execution_api_server_url": f"{here}/execution/",
        },
        "database": {"sql_alchemy_conn": home.database_url, **_asynchronous(home.database_url)},
        "logging": {"base_log_folder": home.logs},
        "api": {
            "host": service.bind,
            "port": port,
            "base_url": service.airflow_url or here,
            "workers": 1,
            "secret_key": kept["secret_key"],
        },
        "api_auth": {"jwt_secret": kept["jwt_secret"]},
        "scheduler": {
            "use_job_schedule": scheduled,
            "task_queued_timeout": _QUEUED_LIMIT_S,
            "num_stuck_in_queued_retries": _QUEUED_AGAIN,
            "task_instance_heartbeat_timeout": HEARTBEAT_LIMIT_S,
            # What a killed scheduler was waiting for is adopted by the next one within a minute.
            "orphaned_tasks_check_interval": 60,
        },
        # A step outlives a server or a database that is away for minutes: asked again every ten seconds at the latest,
        # so that the first sign of life comes soon after it is back, and never killed for it.
        "workers": {
            "execution_api_retries": 30,
            "execution_api_retry_wait_max": 10,
            "max_failed_heartbeats": 100,
        },
        # Parsing takes processor time from what is being measured; the files change with perfci's version only.
        "dag_processor": {"min_file_process_interval": 600, "parsing_processes": 1},
        "usage_data_collection": {"enabled": False},
    }


def _edge(settings: Settings, *, port: int) -> dict[str, object]:
    url = settings.service.airflow_url or reached_at(settings.service.bind, port)
    return {
        "api_enabled": True,
        "api_url": f"{url.rstrip('/')}/edge_worker/v1/rpcapi",
        # Airflow reads it once: it holds the key of the plugin, which knows the nodes' own.
        "trusted_jwks_url": settings.nodes.resolve() / "jwks.json",
        "jwt_issuer": EDGE_ISSUER,
        "jwt_audience": EDGE_AUDIENCE,
        "jwt_algorithm": "EdDSA",
        # Five of them without a word and the node counts as gone.
        "heartbeat_interval": 10,
    }


def _executors(service: Service) -> str:
    own = _EDGE_PATH if is_edge(service) else service.executor
    return ",".join(dict.fromkeys(filter(None, ("LocalExecutor", own))))


def _parallelism(settings: Settings) -> int:
    """Airflow counts the steps of all executors together, and forks so many workers for its own."""
    return PARALLELISM + (sum(queues.slots(settings).values()) - 1 if is_edge(settings.service) else 0)


def _asynchronous(url: str) -> dict[str, object]:
    """Airflow would look for another driver than psycopg, which can do both."""
    return {} if url.startswith("sqlite") else {"sql_alchemy_conn_async": url}
