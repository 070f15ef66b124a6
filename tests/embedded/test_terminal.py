"""A command whose terminal is closed ends, also where only somebody else hears of it."""

from __future__ import annotations

import os
import pty
import sys
import time
from pathlib import Path

import pytest

LIMIT_S = 20.0
# As a child of `make` is: the signal of the closed terminal does not end it.
WATCH = """
import signal, sys, time
from pathlib import Path
if "ignored" in sys.argv: signal.signal(signal.SIGHUP, signal.SIG_IGN)
from perfci.embedded.terminal import Terminal
terminal = Terminal()
if "ignored" not in sys.argv: signal.signal(signal.SIGHUP, lambda *_: None)
folder = Path(sys.argv[1])
(folder / "ready").write_text(str(terminal.gone))
until = time.monotonic() + 5
while not terminal.gone and time.monotonic() < until: time.sleep(0.02)
(folder / ("gone" if terminal.gone else "there")).touch()
"""


def watch(folder: Path, *words: str) -> str:
    """What a command says after its terminal was closed: "gone" or "there"."""
    child, descriptor = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", WATCH, str(folder), *words])
    appears(folder, "ready")
    assert (folder / "ready").read_text() == "False"
    os.close(descriptor)
    said = appears(folder, "gone", "there")
    os.waitpid(child, 0)
    return said


def appears(folder: Path, *names: str) -> str:
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        for name in names:
            if (folder / name).exists() and ((folder / name).read_text() or name != "ready"):
                return name
        time.sleep(0.02)
    raise AssertionError(f"none of {names} in {list(folder.iterdir())}")


@pytest.mark.parametrize(("words", "said"), [((), "gone"), (("ignored",), "there")])
def test_a_closed_terminal_is_seen_unless_nohup_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    assert watch(tmp_path, *words) == said
