"""Two real users of this box for a test, and a worker that runs as one of them. The tests are root."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import perfci
from tests.bench.repositories import Repository

# `sudo -n -u NAME -- COMMAND`, as far as it matters here: it is root's, so its caller can neither kill it nor what it
# becomes, and it passes no environment on.
SUDO = r"""
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    struct passwd *user = count > 5 ? getpwnam(words[3]) : 0;
    if (!user || initgroups(user->pw_name, user->pw_gid) || setgid(user->pw_gid) || setuid(user->pw_uid)) return 1;
    clearenv();
    setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1);
    execv(words[5], words + 5);
    return 1;
}
"""
DRIVER = """
import json, sys
from pathlib import Path
from perfci.bench import suite
from perfci.config import HardwareRule, Service, Settings, Suite
from perfci.errors import PerfciError
told = json.load(sys.stdin)
root = Path(told["root"])
rules = {"here": HardwareRule("here", launch="env {cmd}")}
settings = Settings(root=root, hardware=rules, service=Service(subject=told["subject"], runner=told["runner"]))
job = suite.Job(
    suite=Suite(name="subject", repo=told["repo"], **told["suite"]), repository=told["repo"], sha=told["sha"],
    session=told["session"], runs=1, hardware="here", expect=(("lost", "suite"),),
)
try:
    made = suite.run(job, settings, out=root / "out", echo=lambda line: print(line, file=sys.stderr, flush=True))
except PerfciError as error:
    sys.exit(f"REFUSED {error}")
print(json.dumps(json.loads(made[0].read_text())["run"]))
"""
# Stands in for pytest: results with one benchmark, whose name is what the test wants to know.
RESULTS = """
import json, os, shlex, sys
path = next(w for w in shlex.split(os.environ["PYTEST_ADDOPTS"]) if w.startswith("--benchmark-json=")).split("=", 1)[1]
row = {"group": None, "name": "n", "fullname": sys.argv[1], "params": None, "param": None, "extra_info": {}}
row |= {"options": {}, "stats": {"data": [1e-3] * 5, "rounds": 5, "iterations": 1, "mean": 1e-3, "min": 1e-3}}
json.dump({"version": "5.0.0", "datetime": "2027-01-15T02:00:00+00:00", "benchmarks": [row]}, open(path, "w"))
"""


@dataclass
class Box:
    """folder: of the test, open to all users. python: one that all users can run. worker: "" for root."""

    folder: Path
    python: str
    worker: str
    subject: str
    repository: Repository
    session: int = field(default=0)

    @property
    def state(self) -> Path:
        return self.folder / "node" / ".perfci"

    def commit(self, files: dict[str, str | None]) -> str:
        return self.repository.commit({"results.py": RESULTS, **files})

    def start(self, sha: str, **suite: Any) -> subprocess.Popen[str]:
        """The worker with one job."""
        self.session += 1
        told = {
            "root": str(self.folder / "node"),
            "subject": self.subject,
            "runner": self.python,
            "repo": str(self.repository.folder),
            "sha": sha,
            "session": f"s{self.session}",
            "suite": {"timeout_s": 60.0, **suite},
        }
        process = subprocess.Popen(
            [self.python, "-c", DRIVER],
            env={
                "PATH": f"{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin",
                "PYTHONPATH": str(self.folder / "lib"),
                "PYTHONDONTWRITEBYTECODE": "1",
                "HOME": str(self.folder / "node"),
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
            },
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            umask=0o022,
            **as_user(self.worker, self.subject),
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(told))
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, sha: str, **suite: Any) -> dict[str, Any]:
        """The Run in the result file. Fails where there is none."""
        out, said = (process := self.start(sha, **suite)).communicate(timeout=240)
        assert process.returncode == 0, said
        found: dict[str, Any] = json.loads(out)
        return {**found, "said": said}

    def processes(self) -> list[int]:
        """Of the subject."""
        uid = pwd.getpwnam(self.subject).pw_uid
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and entry.stat().st_uid == uid:
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    found += [int(entry.name)] if state not in "ZX" else []
        return found


def rows(run: dict[str, Any]) -> dict[str, str]:
    """Status by name."""
    return {measurement["workload"]["name"]: measurement["status"] for measurement in run["measurements"]}


def as_user(name: str, group_of: str) -> dict[str, Any]:
    """For subprocess: the user, who is in the other's group too; nothing for no name."""
    if not name:
        return {}
    own = pwd.getpwnam(name)
    return {"user": own.pw_uid, "group": own.pw_gid, "extra_groups": [own.pw_gid, pwd.getpwnam(group_of).pw_gid]}


@contextmanager
def a_box(*, worker_is_root: bool) -> Iterator[Box]:
    with _folder() as folder, _user("s") as subject, _user("w") as worker:
        ignored = shutil.ignore_patterns("__pycache__", "share")
        shutil.copytree(Path(perfci.__file__).parent, folder / "lib" / "perfci", ignore=ignored)
        (folder / "bin").mkdir()
        a_sudo(folder / "bin")
        name = "" if worker_is_root else worker
        repository = Repository(folder / "subject")
        (folder / "node").mkdir()
        if name:
            shutil.chown(folder / "node", name, name)
        box = Box(folder, _python(subject), name, subject, repository)
        secret = box.state / "secrets" / "node.pem"
        secret.parent.mkdir(parents=True)
        secret.write_text("the node's own key")
        secret.chmod(0o600)
        secret.parent.chmod(0o700)
        for path in (box.state, secret.parent, secret):
            shutil.chown(path, name or 0, name or 0)
        try:
            yield box
        finally:
            for pid in box.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="perfci-users-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _user(kind: str) -> Iterator[str]:
    name = f"perfci-{kind}-{os.getpid()}"
    options = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    subprocess.run(["useradd", *options, "--shell", "/usr/sbin/nologin", name], check=True, capture_output=True)
    try:
        yield name
    finally:
        subprocess.run(["userdel", name], check=True, capture_output=True)


def a_sudo(folder: Path) -> None:
    source = folder / "sudo.c"
    source.write_text(SUDO)
    subprocess.run(["gcc", "-O1", "-o", str(folder / "sudo"), str(source)], check=True, capture_output=True)
    (folder / "sudo").chmod(0o4755)


def _python(user: str) -> str:
    """The interpreter of the tests may lie in root's home."""
    ask = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with suppress(OSError):
            if subprocess.run([python, "-c", ask], check=False, env={}, **as_user(user, user)).returncode == 0:
                return python
    raise AssertionError("no Python 3.11 or newer that another user than root can run; install python3")
