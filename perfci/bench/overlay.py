"""A place of its own for what a build installs.

`pip install .` in a build would change the environment, which other commits share: they would be measured
with this one's code. An overlay is a virtual environment that sees the packages of the one below it and
takes what is installed on top; it lies in the commit's own work folder. What the build installed goes before
the checkout (a package there lacks its compiled half), and the checkout before what lies below.
"""

from __future__ import annotations

import os
from pathlib import Path

from perfci.bench import laying, process, sharing
from perfci.bench.environment import Failure, Interpreter


def lay(below: Interpreter, folder: Path, source: Path) -> Interpreter | Failure:
    """An overlay in `folder` on top of an environment; its programs are those below, run by the overlay's Python."""
    sharing.share(folder, below.subject)
    # The Python below runs code of the commit that it was made for as soon as it starts: the subject runs it, and makes
    # the overlay too.
    made = process.run(
        (str(below.python), "-c", Path(laying.__file__).read_text("utf-8"), str(folder), str(source)),
        folder=Path("/"),
        environment=process.scrubbed(os.environ),
        timeout_s=240,
        log=folder.with_suffix(".log"),
        subject=below.subject,
    )
    if made.code != 0:
        return Failure(f"no overlay on {below.python}: it {made.how()}", made.tail)
    return Interpreter(folder / "bin" / "python", below.key, below.subject)
