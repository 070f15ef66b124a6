"""What is wrong, on this side: the node's, or the control plane's. It looks, and changes nothing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from perfci import __version__, workers
from perfci.bench import environment
from perfci.bench import subject as subjects
from perfci.config import Settings
from perfci.errors import PerfciError
from perfci.runner import box, installed, roster, server
from perfci.runner.findings import Finding, Level, fail, ok, warn
from perfci.runner.installed import Installed
from perfci.store import engine, schema

_GB = 1e9
_LOW_BYTES, _TOO_LOW_BYTES = 5 * _GB, 0.5 * _GB
_WHERE_AIRFLOW_IS_HEALTHY = "/api/v2/monitor/health"


def examine(settings: Settings) -> tuple[Finding, ...]:
    """Of the side that these settings belong to."""
    node = installed.here(settings)
    return tuple(_node(settings, node) if node else _control_plane(settings))


# ------------------------------------------------------------------------------------------- a node


def _node(settings: Settings, node: Installed) -> Iterator[Finding]:
    yield ok("node", f"{node.name} in {settings.root}, queue {node.queue}, {node.slots} devices")
    yield from box.programs()
    yield from box.processors()
    yield _disk(settings)
    yield from _asked("runner", lambda: _runner(settings))
    yield from _asked("subject", lambda: _subject(settings))
    yield from _asked("key", lambda: _key(settings, node))
    if not settings.service.server or not settings.service.airflow_url:
        step = "run `perfci runner setup` again"
        yield fail("settings", "service.server or service.airflow_url is empty", next_step=step)
        return
    yield from box.reach(settings.service.server, settings.service.airflow_url, otherwise=Level.FAIL)
    yield _versions(server.health(settings.service.server).version, "the server")
    yield _worker(settings)


def _runner(settings: Settings) -> Finding:
    found = environment.own(settings.service.runner, settings.service.subject)
    for module in ("pytest", "pytest_benchmark", "torch", "triton"):
        if environment.lacks(found, module, {"PATH": os.environ.get("PATH", "")}):
            text = f"{found.python} has no {module}"
            if module.startswith("pytest"):
                return fail("runner", text, next_step="install perfci[runner] there, or name another service.runner")
            return warn("runner", text, next_step="suites that need it have to bring their own environment")
    return ok("runner", str(found.python))


def _subject(settings: Settings) -> Finding:
    found = subjects.of(settings.service.subject)
    if found is None:
        text = "suites run as the worker's own user, beside the node's key"
        return warn("subject", text, next_step="as root: perfci runner setup --users")
    if environment.lacks(environment.own("", found.name), "perfci", {"PYTHONPATH": str(Path(__file__).parents[2])}):
        text = f"{found.name} cannot run {sys.executable} or read perfci in {Path(__file__).parents[2]}"
        return fail("subject", text, next_step="let it enter these folders, and let the worker become it (sudo)")
    return ok("subject", found.name)


def _key(settings: Settings, node: Installed) -> Finding:
    path = installed.key_file(settings)
    if not path.is_file():
        return fail("key", f"there is none at {path}", next_step="run `perfci runner setup` again")
    if path.stat().st_mode & 0o077:
        return fail("key", f"{path} can be read by others", next_step=f"chmod 600 {path}, or better make a new one")
    if importlib.util.find_spec("jwt") is None or not os.access(path, os.R_OK):
        text = f"cannot be tried by this user in {sys.prefix}"
        return warn("key", text, next_step="run the doctor of the worker's environment, as the worker")
    asked = server.known(settings.service.airflow_url, node.name, path, now=datetime.now(UTC))
    if asked.problem:
        step = f"on the control plane: perfci nodes add {node.name} {node.name}.key.json"
        return fail("key", asked.problem, next_step=step if asked.refused else "see `airflow`")
    return ok("key", f"the control plane knows this node as {node.name}")


def _worker(settings: Settings) -> Finding:
    from perfci.runner import worker  # noqa: PLC0415  psutil, which a runner's environment may lack

    pid = worker.at_work(settings)
    if pid is None:
        return fail("worker", "it does not run", next_step="perfci runner start, or systemctl start perfci-worker")
    return ok("worker", f"process {pid}")


# --------------------------------------------------------------------------------- the control plane


def _control_plane(settings: Settings) -> Iterator[Finding]:
    suites, hardware = ", ".join(settings.suites) or "none", ", ".join(settings.hardware) or "none"
    yield ok("settings", f"{settings.root}: suites {suites}; hardware {hardware}")
    yield from _asked("database", lambda: _database(settings))
    yield _disk(settings)
    yield from _secrets(settings)
    yield from _airflow(settings)
    if settings.service.server:
        yield from _hand_over(settings)
    yield from _nodes(settings)


def _database(settings: Settings) -> Finding:
    if not settings.state.is_dir():
        return fail("database", f"there is no {settings.state} yet", next_step="perfci db upgrade, or perfci up")
    schema.check(engine.connect(settings.database_url))
    return ok("database", "is there, with the newest schema")


def _secrets(settings: Settings) -> Iterator[Finding]:
    for path in (settings.secrets, *sorted(settings.secrets.glob("*")), settings.state / "airflow"):
        if path.exists() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            yield fail("secrets", f"{path} is open to others", next_step=f"chmod go= {path}, and think of who had it")


def _airflow(settings: Settings) -> Iterator[Finding]:
    service = settings.service
    local = f"http://{_reachable(service.bind)}:{service.airflow_port}"
    asked = server.answer(f"{local}{_WHERE_AIRFLOW_IS_HEALTHY}")
    if asked.problem:
        yield fail("airflow", _said(asked.problem, service.bind, service.airflow_port), next_step="perfci up")
        return
    sick = [name for name, part in asked.body.items() if isinstance(part, dict) and part.get("status") == "unhealthy"]
    if sick:
        yield fail("airflow", f"unhealthy: {', '.join(sick)}", next_step=f"read {settings.state / 'airflow' / 'logs'}")
    else:
        yield ok("airflow", f"{local} is healthy")
    if service.executor == "EdgeExecutor":
        edge = server.edge(local)
        if edge.problem:
            yield fail("airflow", edge.problem, next_step="start `perfci up` again: its edge API is off")


def _hand_over(settings: Settings) -> Iterator[Finding]:
    service = settings.service
    local = f"http://{_reachable(service.bind)}:{service.server_port}"
    asked = server.health(local)
    if asked.problem:
        yield fail("server", _said(asked.problem, service.bind, service.server_port), next_step="perfci serve")
        return
    yield ok("server", f"{local} answers")
    yield _versions(asked.version, "perfci serve")
    outside = server.health(service.server)
    if outside.problem:
        step = "it is what nodes are told; look at the proxy before it"
        yield warn("server", f"service.server: {outside.problem}", next_step=step)


def _nodes(settings: Settings) -> Iterator[Finding]:
    if settings.service.executor != "EdgeExecutor":
        return
    known = roster.listed(settings.nodes)
    if not known:
        yield fail("nodes", "none may work here", next_step="perfci nodes add NAME KEYFILE")
        return
    found = workers.here(settings, now=datetime.now(UTC))
    if found.known is None:
        yield warn("nodes", found.note or "nobody knows which are alive", next_step="see `airflow`")
        return
    by_name = {worker.name: worker for worker in found.known}
    for node in known:
        worker = by_name.get(node.name)
        if worker is None:
            yield warn(f"node {node.name}", "has never worked here", next_step="perfci runner start, on it")
        elif not worker.alive:
            seen = f"{worker.seen_at:%Y-%m-%d %H:%M} UTC" if worker.seen_at else "never"
            step = "perfci doctor, on it"
            yield warn(f"node {node.name}", f"is {worker.state}, last seen {seen}", next_step=step)
        else:
            yield ok(f"node {node.name}", f"{worker.state}, queues {', '.join(worker.queues) or 'all'}")
    for rule in settings.hardware.values():
        if absent := found.absent(rule.queue):
            step = "start a node of it; until then it is missing in the morning"
            yield fail(f"hardware {rule.name}", absent, next_step=step)


# ------------------------------------------------------------------------------------------- both


def _asked(what: str, question: Callable[[], Finding]) -> Iterator[Finding]:
    """Its answer; an error is one too."""
    try:
        yield question()
    except PerfciError as error:
        yield fail(what, error.message, next_step=error.next_step)
    except (ImportError, OSError) as error:
        yield fail(what, f"cannot be asked: {error}", next_step="mend that first")


def _disk(settings: Settings) -> Finding:
    place = settings.state if settings.state.exists() else settings.root
    free = shutil.disk_usage(place).free
    text = f"{free / _GB:.1f} GB free at {place}"
    if free < _TOO_LOW_BYTES:
        return fail("disk", text, next_step="make room: nothing can be measured or stored")
    if free < _LOW_BYTES:
        return warn("disk", text, next_step="make room")
    return ok("disk", text)


def _versions(there: str, whose: str) -> Finding:
    here = __version__
    if there and there != here:
        step = "install one version on both: DAGs are read on both sides"
        return fail("version", f"perfci {here} here, {there} is {whose}'s", next_step=step)
    return ok("version", f"perfci {here}{_airflow_version()}")


def _airflow_version() -> str:
    try:
        return f", Airflow {metadata.version('apache-airflow-core')}"
    except metadata.PackageNotFoundError:
        return ""


def _said(problem: str, bind: str, port: int) -> str:
    """Tells a port that another program has from one that nobody listens on."""
    try:
        socket.create_connection((_reachable(bind).strip("[]"), port), timeout=2).close()
    except OSError:
        return f"nothing listens on {bind}:{port}"
    return f"something else listens on {bind}:{port} ({problem})"


def _reachable(bind: str) -> str:
    own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)
    return f"[{own}]" if ":" in own else own
