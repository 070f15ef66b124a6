"""How a program of any kernel starts, waits for the kernel before it, and ends; and what it writes when it is traced.

PDL: the launch is a programmatic dependent one (operations.py has the rules). TRACE: the program writes its row of
`trace_ptr`, int64 [programs of the launch, 4] (kernels/timeline/trace.py); without it, nothing of the trace is left in
the machine code.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait, globaltimer, smid


@triton.jit
def start(PDL: tl.constexpr, TRACE: tl.constexpr):
    """Lets the next kernel start. Returns the program's first moment in ns (0 if not traced)."""
    begin = 0
    if TRACE:
        begin = globaltimer()
    if PDL:
        gdc_launch_dependents()
    return begin


@triton.jit
def wait(begin, PDL: tl.constexpr, TRACE: tl.constexpr):
    """Waits until the kernel before is done and all it wrote is there. Returns when the wait began and ended, in ns.

    An ordinary launch has waited before its first moment, `begin`.
    """
    end = begin
    if PDL:
        if TRACE:
            begin = globaltimer()
        gdc_wait()
        if TRACE:
            end = globaltimer()
    return begin, end


@triton.jit
def finish(trace_ptr, begin, end, TRACE: tl.constexpr):
    """After the last store. The barrier makes the moment that of the program's slowest warp."""
    if TRACE:
        tl.debug_barrier()
        done = globaltimer()
        row = trace_ptr + 4 * tl.program_id(0)
        tl.store(row, begin)
        tl.store(row + 1, end)
        tl.store(row + 2, done)
        tl.store(row + 3, smid().to(tl.int64) + 1)
