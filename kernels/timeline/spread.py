"""What tile-level triggers would have saved in a traced step, from its own stamps: no model, one step of reasoning.

The model of `simulation` takes equal programs for equal; in a trace they end at different times. Here each program that
has producers of its own (kernels.timeline.dependencies) waits for them alone, with the same delay to its release, and
then takes as long as it did. It begins no earlier than it did, so what room an earlier end makes is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from kernels.timeline.dependencies import producers
from kernels.timeline.stages import Stage
from kernels.workloads import Decode


def saved(step: Sequence[Stage], workload: Decode, *, tiles: Mapping[str, int]) -> int:
    """ns by which stages would have ended earlier, summed over the step.

    step: of a trace with programmatic dependent launch, every program written, in the order of its programs.
    tiles: by stage, how many each program makes one after the other; 1 where it is not named.
    """
    return sum(_earlier(before, stage, workload, tiles.get(before.key[0], 1)) for before, stage in pairwise(step))


def _earlier(before: Stage, stage: Stage, workload: Decode, tiles: int) -> int:
    left, right = (before.key[0], before.programs), (stage.key[0], stage.programs)
    begins, waits, ends = stage.begin.tolist(), stage.wait_end.tolist(), stage.done.tolist()
    last = 0
    for program, (begin, wait_end, done) in enumerate(zip(begins, waits, ends, strict=True)):
        needed = producers(workload.shape, before=left, stage=right, program=program, tiles=tiles)
        if needed is None:
            return 0
        own = max((int(before.done[tile.start : tile.stop].max()) for tile in needed if len(tile)), default=0)
        last = max(last, done - min(before.last_end - own, wait_end - begin))
    return stage.last_end - last
