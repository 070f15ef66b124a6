"""Lays an overlay; see `overlay`. Its text is run by the Python below, as whoever may run that: FOLDER SOURCE.

A script of its own, standard library alone: no perfci is importable there.
"""

from __future__ import annotations

import json
import os
import shlex
import site
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path


def main(folder: Path, source: str) -> int:
    # Packages are where sys.path says, whether this Python is of a virtual environment or the system's.
    packages = [path for path in sys.path if path.rstrip("/").endswith(("site-packages", "dist-packages"))]
    scripts = [
        str(Path(sys.executable).parent),
        sysconfig.get_path("scripts"),
        str(Path(site.getuserbase(), "bin")),
    ]
    code = subprocess.call([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    if code:
        return code
    # addsitedir reads the .pth files below as well, e.g. those of editable installations.
    lines = f"{source}\n" + "".join(f"import site; site.addsitedir({json.dumps(path)})\n" for path in packages)
    for own in folder.glob("lib/python*/site-packages"):
        (own / "perfci-below.pth").write_text(lines, "utf-8")
    for programs in dict.fromkeys(map(Path, scripts)):
        if programs.is_dir():
            for program in programs.iterdir():
                rewire(program, scripts, folder / "bin" / "python")
    return 0


def rewire(program: Path, scripts: Sequence[str], python: Path) -> None:
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


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
