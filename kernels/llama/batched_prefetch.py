"""Fetching into the L2 what a program will read after its wait: for an operation that leaves the memory idle before it.

What is in shared memory or registers before the wait limits how many programs are there to wait; lines in the L2 do
not.
"""

import triton
import triton.language as tl

LINE_BYTES = tl.constexpr(128)


@triton.jit
def prefetch(pointers):
    """Asks for the cache line behind each pointer; returns nothing and waits for nothing. One thread a pointer.

    Nothing is read as far as the program can tell, so it may be asked for before the wait whoever writes it.
    """
    tl.inline_asm_elementwise(
        "{ prefetch.global.L2 [$1]; mov.u32 $0, 0; }", "=r,l", [pointers], dtype=tl.int32, is_pure=False, pack=1
    )
