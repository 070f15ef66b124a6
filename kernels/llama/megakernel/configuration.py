"""How the megakernel is cut for a size: pinned, not autotuned. Standard library only."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass

from kernels.llama.megakernel.instructions import Instruction, Kind, Tape
from kernels.llama.megakernel.schedule import schedule
from kernels.workloads import Decode


@dataclass(frozen=True, slots=True)
class Configuration:
    """One program on each multiprocessor.

    warps: of a program; a tile has two rows for each
    slots: tiles that the weights' ring holds
    flight: of these, how many are under way at a time
    splits: parts that attention cuts the positions into
    block: positions that a part has in registers at a time, a power of two
    attend_cost: what an ATTEND tile counts where tiles are dealt
    fetch_registers: of a thread of the warp that fills the ring; the others share the rest
    """

    warps: int = 8
    slots: int = 3
    flight: int = 1
    splits: int = 2
    block: int = 256
    attend_cost: float = 0.0
    fetch_registers: int = 24

    @property
    def rows(self) -> int:
        return 2 * self.warps


HOPPER = Configuration()
HOPPER_LONG = dataclasses.replace(HOPPER, splits=4, block=128)
_LONG = 1024


def configuration_for(workload: Decode) -> Configuration:
    """The fastest that was found on an H200 (NOTEBOOK)."""
    return HOPPER_LONG if workload.context > _LONG else HOPPER


@functools.cache  # a trace needs it three times, and it takes half a second
def tape_for(workload: Decode, configuration: Configuration, *, multiprocessors: int) -> Tape:
    """The tape that this configuration walks; ValueError for a size that the kernel is not written for.

    Rows of the residual stream stay in the registers of the program that owns them, so each may own one block of rows;
    and a program's tiles of one stage must be a whole number of programs apart, since the kernel counts them itself.
    Each has a part in every QKV, GATE_UP and HEAD: without, its tags could be of a layer that it has not seen go by
    (`tag_order`), and a step could end before it has begun.
    """
    shape = workload.shape
    blocks = shape.hidden // configuration.rows
    if blocks > multiprocessors:
        raise ValueError(
            f"{workload.name}: {blocks} blocks of {configuration.rows} rows for {multiprocessors} programs; "
            "a program keeps one block at most"
        )
    if shape.hidden % 256 or shape.hidden // 256 != configuration.warps:
        raise ValueError(f"{workload.name}: hidden {shape.hidden} is not 256 for each of {configuration.warps} warps")
    tape = schedule(
        workload,
        programs=multiprocessors,
        rows=configuration.rows,
        splits=configuration.splits,
        attend_cost=configuration.attend_cost,
    )
    for program in tape.programs:
        _check_part_in_all(workload, program)
        for before, after in itertools.pairwise(program):
            if after.wait is None and not after.fresh and after.tile != before.tile + multiprocessors:
                raise ValueError(f"{workload.name}: {after} does not follow {before} by {multiprocessors} tiles")
    return tape


def _check_part_in_all(workload: Decode, program: tuple[Instruction, ...]) -> None:
    layers = workload.shape.layers
    stages = [(kind, layer) for layer in range(layers) for kind in (Kind.QKV, Kind.GATE_UP)] + [(Kind.HEAD, layers)]
    has = {(instruction.kind, instruction.layer) for instruction in program}
    for kind, layer in stages:
        if (kind, layer) not in has:
            raise ValueError(
                f"{workload.name}: a program without a tile of {kind.name} of layer {layer}; give it fewer programs"
            )
