"""Traces of decode steps on the command line.

    python -m kernels.timeline record WORKLOAD [IMPLEMENTATION ...] -o FOLDER
    python -m kernels.timeline summary RESULT ... [--workload NAME] [--implementation NAME]
    python -m kernels.timeline perfetto RESULT ... -o trace.json [--workload NAME] [--implementation NAME]
    python -m kernels.timeline project FOLDER/modular-graph.traces.pt FOLDER/modular-pdl.traces.pt [--bandwidth TB/s]

RESULT is a result file of perfci, or `FOLDER/timelines.json`. `record` runs on this device, without perfci. `project`
compiles the kernels to see how many programs fit on a multiprocessor, which needs no GPU, and takes half a minute.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from kernels import registry, workloads
from kernels.timeline import figures, files, perfetto
from kernels.timeline.analysis import summarize
from kernels.timeline.simulation import Mode
from kernels.timeline.spans import Timeline
from kernels.timeline.trace import Trace

_SEED = 1
_MODES: dict[str, Mode] = {"modular-graph": "graph", "modular-pdl": "pdl"}


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyError as error:
        sys.stderr.write(f"{error.args[0]}\n")
        return 2
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _summary(options: argparse.Namespace) -> int:
    for timeline in _timelines(options):
        try:
            told = figures.table(timeline)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{timeline.implementation}: figures of another shape ({error!r})") from error
        sys.stdout.write(told + "\n\n")
    return 0


def _perfetto(options: argparse.Namespace) -> int:
    options.out.write_text(json.dumps(perfetto.events(_timelines(options))) + "\n", "utf-8")
    return 0


def _record(options: argparse.Namespace) -> int:
    from kernels.llama import inputs, weights
    from kernels.timeline import recording

    workload = workloads.named(options.workload)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    names = options.implementations or _runnable(workload, device)
    for name in names:
        if registry.entry("decode", name).language == "triton" and device == "cpu":
            raise ValueError(f"{name} stamps its kernels on a GPU, and there is none here; torch-eager needs none")
    held = weights.random(workload, device=device, seed=_SEED)
    drawn = inputs.fresh(workload, held, _SEED)
    options.out.mkdir(parents=True, exist_ok=True)
    made: list[Timeline] = []
    with torch.no_grad():
        for name in names:
            timeline, traces = recording.recorded(
                registry.entry("decode", name), workload, held, drawn, steps=options.steps
            )
            made.append(timeline)
            if traces:
                path = options.out / f"{name}.traces.pt"
                files.write_traces(traces, path, workload=workload.name, implementation=name)
            sys.stdout.write(figures.table(timeline) + "\n\n")
            files.write(made, options.out / "timelines.json")
    return 0


def _project(options: argparse.Namespace) -> int:
    from kernels.timeline import occupancy, projection

    traces: dict[Mode, Trace] = {}
    names: set[str] = set()
    for path in options.traces:
        name, implementation, steps = files.read_traces(path)
        if implementation not in _MODES:
            raise ValueError(f"{path} is of {implementation}; the model takes {' and '.join(_MODES)}")
        traces[_MODES[implementation]] = steps[summarize(steps).typical]
        names.add(name)
    if len(names) > 1:
        raise ValueError(f"traces of {' and '.join(sorted(names))}; give those of one workload")
    workload = workloads.named(names.pop())
    footprints = occupancy.of_modular(workload, "modular-pdl" if "pdl" in traces else "modular-graph")
    bandwidth = None if options.bandwidth is None else options.bandwidth * 1000
    found = projection.predictions(traces, workload, bandwidth=bandwidth, footprints=footprints)
    sys.stdout.write(projection.table(found, workload) + "\n")
    return 0


def _runnable(workload: workloads.Decode, device: str) -> list[str]:
    capability = None
    if device == "cuda":
        major, minor = torch.cuda.get_device_capability()
        capability = 10 * major + minor
    runs = [entry for entry in registry.ENTRIES if not entry.unsupported(capability, workload)]
    return [entry.name for entry in runs if device == "cuda" or entry.language == "torch"]


def _timelines(options: argparse.Namespace) -> list[Timeline]:
    chosen = {"workload": options.workload, "implementation": options.implementation}
    return [timeline for path in options.results for timeline in files.timelines(path, **chosen)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kernels.timeline", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    record = commands.add_parser("record", help="trace steps on this device")
    record.add_argument("workload", choices=[workload.name for workload in workloads.WORKLOADS])
    record.add_argument("implementations", nargs="*", metavar="IMPLEMENTATION")
    record.add_argument("--steps", type=int, default=5)
    record.add_argument("-o", "--out", type=Path, required=True)
    record.set_defaults(run=_record)
    project = commands.add_parser("project", help="what tile-level dependency triggers would give: a projection")
    project.add_argument("traces", nargs="+", type=Path, metavar="TRACES")
    project.add_argument("--bandwidth", type=float, help="TB/s that many programs can read; else what the head reached")
    project.set_defaults(run=_project)
    for name, run, told in (
        ("summary", _summary, "print where the time goes"),
        ("perfetto", _perfetto, "write JSON for ui.perfetto.dev"),
    ):
        command = commands.add_parser(name, help=told)
        command.add_argument("results", nargs="+", type=Path, metavar="RESULT")
        command.add_argument("--workload")
        command.add_argument("--implementation")
        command.set_defaults(run=run)
        if name == "perfetto":
            command.add_argument("-o", "--out", type=Path, required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
