"""docs/team.md and docs/nodes.md followed by the letter on two bare machines, to the first night.

Every line of their shell examples is run as it stands, but for what a table below says: names and addresses, packages
(they are in a folder, see `machines`), and systemd, for which the foreground stands, as the pages offer it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfci.bench import probe
from tests.bench.repositories import Repository
from tests.embedded.nights import BENCHMARK
from tests.team.machines import WHEEL, Machine, start_postgresql
from tests.team.networks import CONTROL, joined
from tests.team.place import Command, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.airflow, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
INSTEAD = {
    "https://perfci.example.org": f"http://{CONTROL}:8090",
    "https://airflow.example.org": f"http://{CONTROL}:8080",
    "https://git.example.org/kernels.git": "/srv/perfci/kernels.git",
    '"H200"': '"no device has this name"',
    "h200": probe.hardware().name,
    "perfci-VERSION-py3-none-any.whl": f"/opt/wheels/{WHEEL}",
    " constraints.txt": " /opt/wheels/constraints.txt",
    "[service]": f'[service]\nbind = "{CONTROL}"',
}
# In the middle of the pages' examples; each is left out with its reason.
LEFT_OUT = (
    "apt-get ",  # what it installs is here
    "systemctl ",  # nobody has started this machine; the foreground instead
)


def examples(page: str, language: str = "sh") -> list[str]:
    text = (ROOT / "docs" / page).read_text("utf-8")
    found = re.findall(rf"(?ms)^```{language}\n(.*?)^```", text)
    return [_here(example) for example in found]


def _here(example: str) -> str:
    for before, after in INSTEAD.items():
        example = example.replace(before, after)
    return "".join(line for line in example.splitlines(True) if not line.startswith(LEFT_OUT))


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    if os.geteuid():
        assert not os.environ.get("CI"), "machines of a test's own need root"
        pytest.skip("machines of a test's own need root")
    with joined() as cable:
        yield Machine(cable.control, tmp_path / "control"), Machine(cable.node, tmp_path / "node")


def test_two_bare_machines_become_a_team_and_measure_a_night(machines: tuple[Machine, Machine]) -> None:
    control, node = machines
    started: list[Command] = []
    try:
        follow(control, node, started)
    finally:
        for command in reversed(started):
            command.end()
            command.kill()


def follow(control: Machine, node: Machine, started: list[Command]) -> None:
    start_postgresql(control)
    as_root, install, up, unit, admit, night, _ = examples("team.md")
    (settings,) = examples("team.md", "toml")
    control.run(as_root)
    repository = Repository(control.path("/srv/perfci/kernels.git"))
    repository.commit({"kernels/benchmarks/test_sleep.py": BENCHMARK.format(sleep_s=1)}, "Add a benchmark")
    control.path("/srv/perfci/perfci.toml").write_text(settings)
    control.run("chown -R perfci: /srv/perfci")
    control.run(install, user="perfci", folder="/srv/perfci")
    started.append(control.start(up, user="perfci", folder="/srv/perfci"))
    started[-1].wait_for("Ctrl-C stops everything")
    control.run(unit)
    assert "ExecStart=/srv/perfci/venv/bin/python" in control.run("cat /etc/systemd/system/perfci.service")

    boot, setup, _, _, start, *_ = examples("nodes.md")
    node.run(boot)
    node.run(setup)
    started.append(node.start(start, user="perfci-worker"))
    key = control.path("/srv/perfci/gpu-a.key.json")
    shutil.copy(node.path("/opt/perfci/gpu-a.key.json"), key)
    assert "gpu-a" in control.run(admit, user="perfci", folder="/srv/perfci")
    until(lambda: "Starting worker" in started[-1].output(), "the worker", started[-1].output)

    told = control.run(night, user="perfci", folder="/srv/perfci")
    assert "2 processes" in told or "3 processes" in told, told
    ask = "cd /srv/perfci; set -a; . ./environment; set +a; venv/bin/perfci"
    assert "test_sleep" in control.run(f"{ask} results", user="perfci")
    control.run(f"{ask} doctor", user="perfci")
    node.run("/opt/perfci/worker/bin/perfci --config /opt/perfci/perfci.toml doctor", user="perfci-worker")
    assert_private(control, node)


def assert_private(control: Machine, node: Machine) -> None:
    """What the pages say of secrets: nobody but the services' users can read them."""
    reading = "find {} -type f -readable -print 2>/dev/null || true"
    state = "/srv/perfci/.perfci"
    readable = control.run(reading.format(f"{state}/secrets {state}/airflow /srv/perfci/environment"), user="daemon")
    assert readable.split() == []
    readable = node.run(reading.format("/opt/perfci/.perfci/secrets /opt/perfci/airflow"), user="perfci-subject")
    assert readable.split() == []
    assert "postgresql" not in node.run("cat /opt/perfci/perfci.toml /opt/perfci/airflow/airflow.cfg")
