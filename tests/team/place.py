"""A team's deployment as real processes: PostgreSQL, `perfci up` with the edge executor, and nodes.

    with team(tmp_path) as place:
        place.control.start()
        place.node("gpu-a").start()
        place.control.perfci("nightly")

Everything has a folder of its own and only the environment that the documents give it; each part can be killed and
started again. With `cable` the control plane and the nodes live in networks of their own (see `networks`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil

from perfci import config
from perfci.airflow import Airflow, DagRun, TaskInstance
from perfci.bench import probe
from perfci.config import Settings
from perfci.embedded import home as homes
from perfci.embedded.ports import free
from perfci.errors import ServiceError
from perfci.runner import installed, keys, roster
from perfci.runner.installed import Installed
from perfci.store import reads
from perfci.store.engine import connect
from perfci.store.rows import RunRow
from perfci.supervisor import marked
from tests.bench.repositories import Repository
from tests.embedded.nights import BENCHMARK
from tests.faults.postgresql import Postgresql, started
from tests.team.networks import CONTROL, Cable, Network

ROOT = Path(__file__).parents[2]
LIMIT_S = 300.0
HARDWARE = "cpubox"
# A plain pytest suite of one benchmark, in processes that take some seconds.
SUITE = """
[suite.toy]
repo = "toy"
paths = ["bench"]
run = "pytest bench"
runs = 2
"""


class Command:
    """A process with its output in a file."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    def output(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.output() or self.process.poll() is not None, text, self.output)
        assert text in self.output(), f"it ended with {self.process.returncode}:\n{self.output()}"

    def end(self) -> int:
        """As systemd ends it."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(60)

    def kill(self) -> None:
        """SIGKILL for it alone; waits until what was below it is gone."""
        with suppress(psutil.NoSuchProcess):
            below = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            self.process.wait()
            _, alive = psutil.wait_procs(below, timeout=60)
            assert not alive, alive


class Box:
    """A machine: a folder, an environment, a network."""

    def __init__(self, folder: Path, environment: Mapping[str, str], network: Network | None) -> None:
        self.folder, self.network = folder, network
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), **environment}
        self.prefix: tuple[str, ...] = ()  # goes before every command
        self._commands: list[Command] = []

    @property
    def settings(self) -> Settings:
        return config.load(self.folder / "perfci.toml")

    def perfci(self, *words: str, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Run to its end."""
        command = self.begin(*words)
        command.process.wait(limit_s)
        return subprocess.CompletedProcess(words, command.process.returncode, command.output(), "")

    def begin(self, *words: str) -> Command:
        log = self.folder / f"{len(self._commands)}-{'-'.join(words)[:40].replace('/', '-')}.log"
        with self.here(), log.open("wb") as stream:
            process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "perfci.cli", *words],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._commands.append(Command(process, log))
        return self._commands[-1]

    @contextmanager
    def here(self) -> Iterator[None]:
        with self.network.inside() if self.network else nullcontext():
            yield

    def close(self) -> None:
        for command in reversed(self._commands):
            with suppress(subprocess.TimeoutExpired):
                command.end()
            command.kill()


class Control(Box):
    """The control plane's machine."""

    def __init__(self, folder: Path, postgresql: Postgresql, network: Network | None, *, settings: str) -> None:
        environment = {
            "PERFCI_DATABASE_URL": postgresql.database("perfci", schema=False),
            "PERFCI_AIRFLOW_DATABASE_URL": postgresql.database("airflow", schema=False),
        }
        super().__init__(folder, environment, network)
        address = CONTROL if network else "127.0.0.1"
        self.port, self.server = free(), f"http://{address}:{free()}"
        self.airflow_url = f"http://{address}:{self.port}"
        model = probe.hardware().model
        (folder / "perfci.toml").write_text(
            f"{settings}\n[hardware.{HARDWARE}]\nmatch = {json.dumps(model)}\nqueue = '{HARDWARE}'\nslots = 2\n"
            f"[service]\nexecutor = 'EdgeExecutor'\nbind = '{address}'\nairflow_port = {self.port}\n"
            f"server = '{self.server}'\nserver_port = {self.server.rpartition(':')[2]}\ndashboard_port = 0\n"
            # Nobody's schedule may begin a night in the middle of a test.
            "schedule = '0 0 29 2 *'\n"
        )

    def start(self, *, dashboard: bool = False) -> Command:
        """`perfci up`, ready."""
        if not (self.settings.state / "airflow").exists():
            made = self.perfci("db", "upgrade")
            assert made.returncode == 0, made.stdout
        command = self.begin("up", *(() if dashboard else ("--no-dashboard",)))
        command.wait_for("Ctrl-C stops everything")
        return command

    def component(self, name: str) -> psutil.Process:
        """name: scheduler, api-server, dag-processor, serve or dashboard. The process itself, not what it forked."""
        named = [p for p in marked(homes.of(self.settings).mark) if _is_called(p, name)]
        (found,) = (p for p in named if p.ppid() not in {other.pid for other in named})
        return found

    @contextmanager
    def airflow(self) -> Iterator[Airflow]:
        """A client of its Airflow; not to be kept over a restart."""
        password = json.loads((self.settings.state / "airflow" / "password.json").read_text())["admin"]
        with self.here(), Airflow(self.airflow_url, user="admin", password=password) as airflow:
            yield airflow

    def trigger(self, **conf: object) -> DagRun:
        with self.airflow() as airflow:
            return airflow.trigger("nightly", conf=conf)

    def tasks(self, run: DagRun) -> dict[str, TaskInstance]:
        """By name, `cpubox.measure[0]` for a mapped one. Empty while Airflow is away."""
        with suppress(ServiceError), self.airflow() as airflow:
            found = airflow.task_instances("nightly", run.id)
            return {t.task if t.map_index < 0 else f"{t.task}[{t.map_index}]": t for t in found}
        return {}

    def state(self, run: DagRun) -> str:
        """Empty while Airflow is away."""
        with suppress(ServiceError), self.airflow() as airflow:
            return airflow.dag_run("nightly", run.id).state
        return ""

    def wait_for_task(self, run: DagRun, task: str, *states: str, limit_s: float = LIMIT_S) -> TaskInstance:
        found: list[TaskInstance] = []

        def reached() -> bool:
            found[:] = [t for name, t in self.tasks(run).items() if name == task and t.state in states]
            return bool(found)

        until(reached, f"{task}: {states}", self.logs, limit_s=limit_s)
        return found[0]

    def wait_for_end(self, run: DagRun, *, limit_s: float = LIMIT_S) -> str:
        until(lambda: self.state(run) in ("success", "failed"), f"the end of {run.id}", self.logs, limit_s=limit_s)
        return self.state(run)

    def wait_for_worker(self, name: str, *states: str) -> None:
        def seen() -> bool:
            with suppress(ServiceError), self.airflow() as airflow:
                return any(w.name == name and w.state in (states or ("idle", "running")) for w in airflow.workers())
            return False

        until(seen, f"node {name} at work", self.logs)

    def runs(self) -> tuple[RunRow, ...]:
        """All that are stored."""
        with self.here():
            engine = connect(self.environment["PERFCI_DATABASE_URL"], read_only=True)
            try:
                return tuple(run for suite in self.settings.suites for run in reads.runs(engine, suite=suite))
            finally:
                engine.dispose()

    def logs(self) -> str:
        folder = self.settings.state
        paths = [*self.folder.glob("*.log"), *(folder / "logs").glob("*.log"), *(folder / "airflow/logs").glob("*.log")]
        return "\n".join(f"== {path}\n{path.read_text('utf-8', 'replace')[-3000:]}" for path in paths)


class Node(Box):
    """A node's machine, set up by hand: what `perfci runner setup` leaves, with the tests' own Python."""

    def __init__(self, folder: Path, name: str, control: Control, network: Network | None) -> None:
        super().__init__(folder, {}, network)
        self.name, self.control = name, control
        rule = control.settings.hardware[HARDWARE]
        (folder / "perfci.toml").write_text(
            f"[hardware.{HARDWARE}]\nmatch = {json.dumps(rule.match)}\nqueue = '{HARDWARE}'\n"
            f"[service]\nexecutor = 'EdgeExecutor'\n"
            f"server = '{control.server}'\nairflow_url = '{control.airflow_url}'\n"
        )
        self.identity = Installed(name, HARDWARE, HARDWARE, 1, sys.executable)
        (folder / installed.FILE).write_text(self.identity.text())
        self.admit()

    def admit(self) -> None:
        """What `perfci nodes add` does, on the control plane."""
        key = keys.public_jwk(keys.private(installed.key_file(self.settings)))
        roster.add(self.control.settings.nodes, self.name, json.dumps(key), replace=True, now=datetime.now(UTC))

    def rename(self, name: str) -> None:
        """The same box under another's name, for a test of that."""
        self.name, self.identity = name, dataclasses.replace(self.identity, name=name)
        (self.folder / installed.FILE).write_text(self.identity.text())

    def start(self, *, ready: bool = True) -> Command:
        command = self.begin("runner", "start")
        if ready:
            self.control.wait_for_worker(self.name)
        return command

    def worker(self) -> psutil.Process:
        """Airflow's edge worker itself."""
        mine = [p for p in psutil.process_iter() if _has(p, AIRFLOW_HOME=str(self.folder / "airflow"))]
        (found,) = (p for p in mine if " edge worker" in " ".join(p.cmdline()) and _oldest(p))
        return found

    def processes(self) -> list[psutil.Process]:
        """All that belong to this node."""
        return [p for p in psutil.process_iter() if _has(p, HOME=str(self.folder))]

    def kill_all(self) -> None:
        """As when the power fails: SIGKILL to everything of it at once."""
        while found := self.processes():
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGSTOP)
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(found, timeout=10)


class Team:
    def __init__(self, folder: Path, postgresql: Postgresql, cable: Cable | None, *, settings: str) -> None:
        self.folder, self.postgresql, self.cable = folder, postgresql, cable
        control = folder / "control"
        control.mkdir()
        self.control = Control(control, postgresql, cable.control if cable else None, settings=settings)
        self.nodes: dict[str, Node] = {}

    def repository(self, name: str = "toy", *, sleep_s: float = 1.0) -> Repository:
        made = Repository(self.control.folder / name)
        made.commit({"bench/test_sleep.py": BENCHMARK.format(sleep_s=sleep_s)}, "Add a benchmark")
        return made

    def node(self, name: str) -> Node:
        """Set up when it is asked for first."""
        if name not in self.nodes:
            folder = self.folder / name
            folder.mkdir()
            self.nodes[name] = Node(folder, name, self.control, self.cable.node if self.cable else None)
        return self.nodes[name]

    @contextmanager
    def without_database(self) -> Iterator[None]:
        """PostgreSQL is down; whoever was connected has lost it."""
        with self.control.here():
            self.postgresql.stop()
        try:
            yield
        finally:
            with self.control.here():
                self.postgresql.start()

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()
            node.kill_all()
        self.control.close()


@contextmanager
def team(folder: Path, *, settings: str = SUITE, cable: Cable | None = None) -> Iterator[Team]:
    """With a PostgreSQL of its own, which `place.postgresql` stops and starts."""
    with ExitStack() as stack:
        stack.enter_context(cable.control.inside() if cable else nullcontext())
        postgresql = stack.enter_context(started())
        place = Team(folder, postgresql, cable, settings=settings)
        stack.callback(place.close)
        if cable:
            stack.enter_context(cable.node.inside())  # nothing is reached by chance
        yield place


def until(
    true: Callable[[], object], what: str, told: Callable[[], object] = lambda: "", *, limit_s: float = LIMIT_S
) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"not within {limit_s:g} s: {what}\n{told()}"
        time.sleep(0.2)


def _is_called(process: psutil.Process, name: str) -> bool:
    """Airflow gives some of its processes titles of their own: `airflow api_server -- host:127.0.0.1`."""
    word = "streamlit" if name == "dashboard" else name
    return word in " ".join(process.cmdline()[:6]).replace("_", "-").split()


def _has(process: psutil.Process, **variables: str) -> bool:
    try:
        environment = process.environ()
    except (psutil.Error, OSError):
        return False
    return all(environment.get(name) == value for name, value in variables.items())


def _oldest(process: psutil.Process) -> bool:
    """Not forked from another of the same command."""
    parent = process.parent()
    return parent is None or parent.cmdline() != process.cmdline()
