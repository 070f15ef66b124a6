from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perfci.bench import telemetry
from perfci.bench.gpu import Reading
from perfci.bench.telemetry import Busyness, Ticks
from perfci.model import Telemetry

HERTZ = os.sysconf("SC_CLK_TCK")


def ticks(*, own: float = 0, busy: float = 0, stolen: float = 0, **others: float) -> Ticks:
    """Seconds of processor time; other processes by name, numbered from 10 in their order."""
    return Ticks(
        own=round(own * HERTZ),
        busy=round(busy * HERTZ),
        stolen=round(stolen * HERTZ),
        others={10 + i: round(seconds * HERTZ) for i, seconds in enumerate(others.values())},
        names={10 + i: name for i, name in enumerate(others)},
    )


def test_readings_become_ranges_and_what_a_device_does_not_say_stays_unknown() -> None:
    readings = [
        Reading(sm_clock_hz=1.98e9, temperature_c=40.0, power_w=300.0),
        Reading(sm_clock_hz=1.965e9, temperature_c=52.0, power_w=700.0, throttled=("sw_power_cap",)),
        Reading(throttled=("sw_power_cap", "hw_slowdown")),
    ]
    assert telemetry.summarize(readings, others=["python (7)"], loads=[0.5, 1.5]) == Telemetry(
        sm_clock_hz=(1.965e9, 1.98e9),
        memory_clock_hz=None,
        temperature_c=(40.0, 52.0),
        power_w=(300.0, 700.0),
        throttled=("hw_slowdown", "sw_power_cap"),
        others=("python (7)",),
        load_average=1.5,
    )
    assert telemetry.summarize([], others=[], loads=[]) == Telemetry()


def test_who_took_a_fifth_of_a_core_is_named_the_busiest_first() -> None:
    busyness = Busyness()
    busyness.add(ticks(scheduler=100, browser=50, clock=1), ticks(scheduler=101, browser=54, clock=1.1), seconds=4.0)
    busyness.add(ticks(scheduler=101, browser=54, clock=1.1), ticks(scheduler=102, browser=54, clock=1.2), seconds=1.0)
    assert busyness.told() == ("browser (11): 80 % of a core", "scheduler (10): 40 % of a core")


def test_busy_time_that_no_process_shows_is_told_too() -> None:
    busyness = Busyness()
    busyness.add(ticks(own=5, busy=20, stolen=1, a=3), ticks(own=15, busy=41, stolen=4, a=4), seconds=10.0)
    # 21 busy: 10 are this process's, 1 is a's; 10 remain. 3 were stolen by other guests of the host.
    assert busyness.told() == (
        "processes that ended or cannot be seen: 100 % of a core",
        "other virtual machines: 30 % of a core",
    )


def test_a_number_that_is_used_again_does_not_count_backwards() -> None:
    busyness = Busyness()
    busyness.add(ticks(old=500), ticks(new=1), seconds=1.0)
    assert busyness.told() == ()
    assert Busyness().told() == ()


def test_the_kernels_files_are_read_whatever_a_process_is_called() -> None:
    assert telemetry.parse_stat("cpu  100 20 30 900 5 1 2 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n") == (153, 7)
    assert telemetry.parse_stat("") is None
    line = "4321 (a) b (c) S 77 4321 4321 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 100 0 0"
    assert telemetry.parse_process_stat(line) == ("a) b (c", 300, 77)
    assert telemetry.parse_process_stat("") is None


SPIN = """
import os, sys, time
print(os.getpid(), flush=True)
sys.stdin.readline()
end = time.process_time() + 0.5
while time.process_time() < end:
    pass
print("done", flush=True)
sys.stdin.readline()
"""
ORPHAN = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"


@contextmanager
def spinning(*command: str) -> Iterator[tuple[int, Callable[[], None]]]:
    """A process that waits, and something that lets it use half a second of a core."""
    started = subprocess.Popen(
        [sys.executable, "-c", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdin is not None
    assert started.stdout is not None
    number = int(started.stdout.readline())

    def spin() -> None:
        started.stdin.write("\n")
        started.stdin.flush()
        assert started.stdout.readline() == "done\n"

    yield number, spin
    started.stdin.close()
    started.wait(timeout=30)
    started.stdout.close()


def test_a_neighbours_time_is_its_own_and_a_childs_is_this_process() -> None:
    with spinning(ORPHAN, SPIN) as (neighbour, spin), spinning(SPIN) as (child, spin_too):
        begin = telemetry.ticks()
        spin()
        spin_too()
        end = telemetry.ticks()
    assert begin is not None
    assert end is not None
    assert child not in end.others
    assert "python" in end.names[neighbour]
    # The kernel counts whole ticks, mostly of 10 ms.
    assert end.others[neighbour] - begin.others[neighbour] >= 0.45 * HERTZ
    assert end.own - begin.own >= 0.45 * HERTZ


def test_the_device_is_looked_at_inside_of_windows_alone() -> None:
    recorder = telemetry.Recorder(interval=0.001)
    recorder.start()
    watcher = next(thread for thread in threading.enumerate() if thread.name == "perfci-telemetry")
    time.sleep(0.05)  # many intervals, and no window
    assert recorder._loads == []
    with recorder.window():
        pass
    looks = len(recorder._loads)
    assert looks >= 1  # a window shorter than an interval is seen too
    found = recorder.stop()
    assert found.load_average is not None
    assert not watcher.is_alive()


def test_a_recorder_that_saw_no_window_knows_nothing() -> None:
    recorder = telemetry.Recorder()
    recorder.start()
    assert recorder.stop() == Telemetry()
