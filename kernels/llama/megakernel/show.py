"""Prints how a megakernel's tape shares out a step: tiles of each stage, counters, and whether the order holds.

python -m kernels.llama.megakernel.show WORKLOAD --programs N --rows R [--splits S]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from kernels import workloads
from kernels.llama.megakernel.instructions import Kind, Tape
from kernels.llama.megakernel.schedule import schedule
from kernels.llama.megakernel.validator import validate


def table(tape: Tape) -> str:
    """For each kind: tiles in all layers, least and most of a program, waits and signals of all programs."""
    lines = [f"{'stage':8} {'tiles':>7} {'least':>6} {'most':>6} {'waits':>6} {'signals':>7}"]
    for kind in Kind:
        counts = [Counter(i.kind for i in program)[kind] for program in tape.programs]
        waits = sum(i.kind is kind and i.wait is not None for program in tape.programs for i in program)
        signals = sum(i.kind is kind and i.signal is not None for program in tape.programs for i in program)
        lines.append(f"{kind.name:8} {sum(counts):7} {min(counts):6} {max(counts):6} {waits:6} {signals:7}")
    lengths = [len(program) for program in tape.programs]
    lines.append(f"{'all':8} {sum(lengths):7} {min(lengths):6} {max(lengths):6}; {tape.counters} counters")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels.llama.megakernel.show", description=__doc__)
    parser.add_argument("workload", help="a name such as decode/llama-1b/b1-ctx512-bf16")
    parser.add_argument("--programs", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--splits", type=int, default=2)
    chosen = parser.parse_args(arguments)
    try:
        workload = workloads.named(chosen.workload)
        tape = schedule(workload, programs=chosen.programs, rows=chosen.rows, splits=chosen.splits)
        validate(tape, workload)
    except (KeyError, ValueError) as error:
        sys.stderr.write(f"{error.args[0]}\n")
        return 2
    sys.stdout.write(table(tape) + "every access is ordered, in this step and the next\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
