"""A place of its own for what a build installs.

`pip install .` in a build would change the environment, which other commits share: they would be measured
with this one's code. An overlay is a virtual environment that sees the packages of the one below it and
takes what is installed on top; it lies in the commit's own work folder. What the build installed goes before
the checkout (a package there lacks its compiled half), and the checkout before what lies below.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from perfci.bench import process
from perfci.bench.environment import Failure, Interpreter

# Packages are where sys.path says, whether the Python below is of a virtual environment or the system's.
_ASK = """
import json, os, site, sys, sysconfig
packages = [p for p in sys.path if p.rstrip("/").endswith(("site-packages", "dist-packages"))]
scripts = [os.path.dirname(sys.executable), sysconfig.get_path("scripts"), os.path.join(site.getuserbase(), "bin")]
print(json.dumps([packages, scripts]))
"""


def lay(below: Interpreter, folder: Path, source: Path) -> Interpreter | Failure:
    """An overlay in `folder` on top of an environment; its programs are those below, run by the overlay's Python."""
    asked = _run(below, folder.with_suffix(".log"), "-c", _ASK)
    made = _run(below, folder.with_suffix(".log"), "-m", "venv", "--without-pip", str(folder))
    for ended in (asked, made):
        if ended.code != 0:
            return Failure(f"no overlay on {below.python}: it {ended.how()}", ended.tail)
    packages, scripts = json.loads(asked.tail.splitlines()[-1])
    python = folder / "bin" / "python"
    # addsitedir reads the .pth files below as well, e.g. those of editable installations.
    lines = f"{source}\n" + "".join(f"import site; site.addsitedir({path!r})\n" for path in packages)
    for own in folder.glob("lib/python*/site-packages"):
        (own / "perfci-below.pth").write_text(lines, "utf-8")
    for programs in dict.fromkeys(map(Path, scripts)):
        if programs.is_dir():
            for program in programs.iterdir():
                _rewire(program, scripts, python)
    return Interpreter(python, below.key)


def _run(below: Interpreter, log: Path, *arguments: str) -> process.Ended:
    return process.run(
        (str(below.python), *arguments),
        folder=Path("/"),
        environment=process.scrubbed(os.environ),
        timeout_s=120,
        log=log,
    )


def _rewire(program: Path, scripts: Sequence[str], python: Path) -> None:
    """Copy a script that the Python below runs, for the overlay's Python: pip, pytest and the like."""
    target = python.parent / program.name
    if target.exists() or not program.is_file() or not os.access(program, os.R_OK):
        return
    with program.open("rb") as stream:
        if stream.read(2) != b"#!":
            return
        lines = stream.read().split(b"\n")
    # pip writes a long or spaced path as: #!/bin/sh, '''exec' "/path/python" "$0" "$@", ' '''
    by_shell = lines[0] == b"/bin/sh" and len(lines) > 2 and lines[1].startswith(b"'''exec'")
    first = (
        lines[1].decode("utf-8", "replace").removeprefix("'''exec'")
        if by_shell
        else lines[0].decode("utf-8", "replace")
    )
    words = shlex.split(first)
    if not words or str(Path(words[0]).parent) not in scripts or "python" not in Path(words[0]).name:
        return
    head = b"#!/bin/sh\n'''exec' \"%s\" \"$0\" \"$@\"\n' '''\n" % os.fsencode(python)
    target.write_bytes(head + b"\n".join(lines[3 if by_shell else 1 :]))
    target.chmod(0o755)
