"""What was found in a trace, in the shapes that leave this package: JSON, facts for a result, a table to read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from kernels.timeline import profiled
from kernels.timeline.analysis import Summary
from kernels.timeline.partition import KINDS
from kernels.timeline.profiled import Event
from kernels.timeline.spans import Timeline

Facts = Mapping[str, float | int | str | bool]

_NS = 1e-9
_KERNELS_TOLD = 12

NOTE = (
    "Traced steps are slower than timed ones and give no latency. Blank is not idle: only traced programs show. "
    "A span is a program that is there, which may be waiting for memory."
)


def of_programs(summary: Summary, *, overhead: float) -> dict[str, Any]:
    """JSON of a Summary, ns. overhead: time of a traced step over that of one without a trace."""
    plain = dataclasses.asdict(summary)
    return {"source": "programs", "overhead": overhead, **plain, "stages": list(plain["stages"])}


def of_kernels(steps: Sequence[Sequence[Event]], *, overhead: float) -> dict[str, Any]:
    """JSON of what the profiler saw, ns: busy time by kernel, the longest first, and gaps; they add up to the step."""
    step = profiled.typical(steps)
    busy, by_kernel = profiled.busy(step)
    duration = profiled.duration(step)
    return {
        "source": "kernels",
        "overhead": overhead,
        "steps": len(steps),
        "typical_step": duration,
        "launches": len(step),
        "busy": busy,
        "gap": duration - busy,
        "kernels": dict(list(by_kernel.items())[:_KERNELS_TOLD]),
    }


def facts(figures: Mapping[str, Any]) -> Facts:
    """Scalars for a result's extras, in seconds and fractions; at most 8 and 5 a stage. busy, tail, wait and gap of all
    stages add up to `trace.step_s`."""
    found: dict[str, float | int | str | bool] = {
        "trace.source": figures["source"],
        "trace.overhead": figures["overhead"],
        "trace.steps": figures["steps"],
        "trace.step_s": figures["typical_step"] * _NS,
    }
    if figures["source"] == "kernels":
        busy, gap = figures["busy"] * _NS, figures["gap"] * _NS
        return {**found, "trace.launches": figures["launches"], "trace.busy_s": busy, "trace.gap_s": gap}
    found["trace.tick_s"] = figures["tick"] * _NS
    found["trace.multiprocessors"] = figures["multiprocessors"]
    found["trace.occupancy"] = figures["occupancy"]
    for stage in figures["stages"]:
        name = f"trace.{stage['stage']}"
        found |= {f"{name}.{kind}_s": stage["parts"].get(kind, 0) * _NS for kind in KINDS}
        if (rate := _rate(stage)) is not None:
            found[f"{name}.bytes_per_s"] = rate
    return found


def table(timeline: Timeline) -> str:
    """For reading in a terminal. KeyError or TypeError for figures of another shape."""
    figures = timeline.figures
    head = (
        f"{timeline.workload}  {timeline.implementation}: {figures['typical_step'] / 1000:.1f} us traced, "
        f"median of {figures['steps']} steps, {figures['overhead']:.3f} times the step without a trace"
    )
    lines = _kernel_lines(figures) if figures["source"] == "kernels" else _stage_lines(figures)
    return "\n".join([head, *lines, NOTE])


def _kernel_lines(figures: Mapping[str, Any]) -> list[str]:
    step = figures["typical_step"] or 1
    rows = [(name, ns) for name, ns in figures["kernels"].items()]
    rest = figures["busy"] - sum(ns for _, ns in rows)
    rows += [("other kernels", rest)] if rest else []
    rows.append(("gaps", figures["gap"]))
    lines = [f"{figures['launches']} launches"]
    return lines + [f"  {ns / 1000:9.1f} us {ns / step:6.1%}  {name}" for name, ns in rows]


_COLUMNS = (
    "stage",
    "layers",
    "busy us",
    "tail us",
    "wait us",
    "gap us",
    "share",
    "TB/s",
    "launch gap us",
    "barrier us",
    "straggler us",
    "waiting",
    "occupied",
)


def _stage_lines(figures: Mapping[str, Any]) -> list[str]:
    step = figures["typical_step"] or 1
    rows = [list(_COLUMNS)]
    totals = dict.fromkeys(KINDS, 0)
    for stage in figures["stages"]:
        parts = [stage["parts"].get(kind, 0) for kind in KINDS]
        totals = {kind: totals[kind] + part for kind, part in zip(KINDS, parts, strict=True)}
        rate = _rate(stage)
        rows.append(
            [
                str(stage["stage"]),
                str(stage["layers"]),
                *(f"{part / 1000:.2f}" for part in parts),
                f"{sum(parts) / step:.1%}",
                "" if rate is None else f"{rate * 1e-12:.2f}",
                *("" if ns is None else f"{ns / 1000:.2f}" for ns in (stage["gap"], stage["barrier"], stage["tail"])),
                f"{stage['wait_share']:.1%}",
                f"{stage['occupancy']:.1%}",
            ]
        )
    total = sum(totals.values())
    rows.append(["step", "", *(f"{totals[kind] / 1000:.2f}" for kind in KINDS), f"{total / step:.1%}"])
    about = (
        f"{figures['multiprocessors']} multiprocessors, {figures['occupancy']:.1%} of their time occupied; "
        f"the device's clock ticks every {figures['tick']} ns"
    )
    return [about, *_aligned(rows)]


def _rate(stage: Mapping[str, Any]) -> float | None:
    share = sum(stage["parts"].values())
    return None if stage["bytes"] is None or not share else stage["bytes"] / (share * _NS)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=False))
        )
        for row in rows
    ]
