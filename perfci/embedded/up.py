"""The service on one machine: Airflow with its schedule, and the dashboard."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx

from perfci import share
from perfci.config import Settings
from perfci.embedded import instance, ports
from perfci.embedded.absence import watched
from perfci.embedded.environment import inherited
from perfci.embedded.home import USER
from perfci.embedded.lock import this_process
from perfci.embedded.night import sigterm_interrupts
from perfci.embedded.options import reached_at
from perfci.embedded.revival import Revival
from perfci.embedded.terminal import Terminal
from perfci.errors import ServiceError
from perfci.supervisor import Program, Tree

_LIMIT_S = 60.0


def up(settings: Settings, *, dashboard: bool, airflow: bool, echo: Callable[[str], None]) -> None:
    """Blocks until Ctrl-C or SIGTERM, or until its terminal or the `make` that started it is gone.

    Raises ServiceError when a port is taken, or when a part of it ends by itself again and again."""
    this, terminal = this_process(instance.UP), Terminal()
    with sigterm_interrupts(), ExitStack() as stack:
        try:
            port = ports.wanted(settings.service.dashboard_port, setting="service.dashboard_port") if dashboard else 0
            trees: list[Tree] = []
            if airflow:
                own = stack.enter_context(instance.own(settings, echo=echo))
                assert isinstance(own.owner, Tree)
                trees.append(own.owner)
                echo(f"Airflow    {own.airflow.url}  (user {USER}, password in {own.home.password_file})")
                if settings.service.server:
                    echo(f"Hand-over  {_start_serving(settings, own.owner)}")
            if dashboard:
                tree = trees[0] if trees else stack.enter_context(_dashboard_tree(settings))
                trees = [tree]
                _start_dashboard(settings, tree, port=port)
                echo(f"Dashboard  http://{ports.LOOPBACK}:{port}")
            if not trees:
                raise ServiceError("neither Airflow nor the dashboard is asked for", next_step="ask for one of them")
            echo("Ctrl-C stops everything")
            if airflow:
                stack.enter_context(watched(settings, echo=echo))
            revival = Revival(trees[0], echo, began=time.monotonic())
            while this.present and not terminal.gone:
                revival.tend(at=time.monotonic())
                time.sleep(0.5)
        except KeyboardInterrupt:
            pass
        if not terminal.gone:
            echo("stopping")


def _dashboard_tree(settings: Settings) -> Tree:
    """The dashboard alone needs no lock: any number of them may read."""
    logs = settings.state / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServiceError(f"{logs}: {error.strerror}", next_step="make room and make it writable") from error
    return Tree(f"dashboard:{settings.state.resolve()}:{os.getpid()}", log=logs / "supervisor.log")


def _start_dashboard(settings: Settings, tree: Tree, *, port: int) -> None:
    if importlib.util.find_spec("streamlit") is None:
        raise ServiceError(
            f"Streamlit is not installed for {sys.executable}", next_step="pip install 'perfci[dashboard]'"
        )
    pages = share.folder("dashboard")
    options = {
        "server.headless": "true",
        "server.address": ports.LOOPBACK,
        "server.port": str(port),
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "viewer",
    }
    command = [sys.executable, "-m", "streamlit", "run", str(pages / "app.py")]
    command += [word for name, value in options.items() for word in (f"--{name}", value)]
    tree.start(Program("dashboard", tuple(command), inherited(settings), pages, _log(settings, "dashboard")))
    _wait(tree, f"http://{ports.LOOPBACK}:{port}/_stcore/health", "the dashboard", settings)


def _start_serving(settings: Settings, tree: Tree) -> str:
    """The hand-over to and from the nodes; where it listens."""
    service = settings.service
    port = ports.wanted(service.server_port, setting="service.server_port", address=service.bind)
    if port != service.server_port:
        raise ServiceError("service.server_port = 0", next_step="name the port to which service.server leads")
    url = reached_at(service.bind, port)
    command = (sys.executable, "-P", "-m", "perfci.cli", "serve")
    tree.start(Program("serve", command, inherited(settings), settings.root, _log(settings, "serve")))
    _wait(tree, f"{url}/health", "the hand-over", settings)
    return url


def _log(settings: Settings, name: str) -> Path:
    logs = settings.state / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    return logs / f"{name}.log"


def _wait(tree: Tree, url: str, what: str, settings: Settings) -> None:
    until = time.monotonic() + _LIMIT_S
    while not _answers(url):
        tree.check()
        if time.monotonic() > until:
            raise ServiceError(f"{what} is not there after {_LIMIT_S:g} s", next_step=f"read {settings.state / 'logs'}")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False
