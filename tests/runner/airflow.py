"""Airflow's API server with its edge API, as the control plane has it, and nothing else of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.conftest import ROOT

_SETTINGS = """
[core]
executor = LocalExecutor,edge:airflow.providers.edge3.executors.EdgeExecutor
dags_folder = {home}/dags
load_examples = False
plugins_folder = {home}/plugins
[database]
sql_alchemy_conn = sqlite:///{home}/airflow.db
[api]
host = 127.0.0.1
port = {port}
workers = 1
secret_key = for-tests-alone
[api_auth]
jwt_secret = {secret}
[edge]
api_enabled = True
api_url = http://127.0.0.1:{port}/edge_worker/v1/rpcapi
trusted_jwks_url = {nodes}/jwks.json
jwt_issuer = perfci-edge
jwt_audience = api
jwt_algorithm = EdDSA
heartbeat_interval = 5
"""
_PLUGIN = """
from pathlib import Path
from airflow.plugins_manager import AirflowPlugin
from perfci.runner.binding import Bound
class Nodes(AirflowPlugin):
    name = "nodes"
    fastapi_root_middlewares = [{{"name": "bound", "middleware": Bound, "kwargs": {{"nodes": Path({nodes!r})}}}}]
"""


@dataclass
class Server:
    """nodes: the folder of public keys."""

    home: Path
    port: int
    nodes: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.home / "api.log").open("ab") as log:
            command = [sys.executable, "-m", "airflow", "api-server"]
            self.process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                if httpx.get(f"{self.url}/edge_worker/v1/health", timeout=2, trust_env=False).is_success:
                    return
            except httpx.HTTPError:
                time.sleep(0.2)
        raise AssertionError((self.home / "api.log").read_text()[-3000:])

    def stop(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, 9)
            self.process.wait()
            self.process = None

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        return kept | {"AIRFLOW_HOME": str(self.home), "PYTHONPATH": str(ROOT)}


@contextmanager
def a_server(folder: Path) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = Server(folder / "airflow", port, folder / "state" / "nodes")
    (server.home / "plugins").mkdir(parents=True)
    settings = _SETTINGS.format(home=server.home, port=port, nodes=server.nodes, secret="s" * 64)
    (server.home / "airflow.cfg").write_text(settings)
    (server.home / "plugins" / "nodes.py").write_text(_PLUGIN.format(nodes=str(server.nodes)))
    command = [sys.executable, "-m", "airflow", "db", "migrate"]
    subprocess.run(command, env=server.environment, check=True, capture_output=True)
    server.start()
    try:
        yield server
    finally:
        server.stop()
