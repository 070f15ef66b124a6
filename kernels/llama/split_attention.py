"""Attention over a long context: split over positions, so that all multiprocessors load keys and values, then merged.

The rules of operations.py hold here too. Two kernels rather than a merge inside the output projection: each of its
programs would read all parts again, 8 KB a split and program, where the merge reads them once.
"""

import triton
import triton.language as tl

from kernels.llama.program import finish, start, wait


@triton.jit
def attend_split(
    query_ptr,
    keys_ptr,
    values_ptr,
    position_ptr,
    parts_ptr,
    peaks_ptr,
    totals_ptr,
    QUERY_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HD: tl.constexpr,
    CONTEXT: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """Softmax attention over BLOCK positions, for all query heads of one key and value head: they share the loads.

    query float32 [QUERY_HEADS, HD]; keys, values [KV_HEADS, C, HD]. With s = q k^T / sqrt(HD) in base 2 over the
    block's positions up to `position`: peaks = max s, totals = sum 2^(s - peak), float32 [QUERY_HEADS, SPLITS], and
    parts = sum 2^(s - peak) v, float32 [QUERY_HEADS, SPLITS, HD]. A block without such a position gives -1e30, 0
    and 0. Program: key head x SPLITS + split; SPLITS BLOCK >= C. The block is in registers before the wait but for
    the step's own row, which is loaded over its place afterwards.
    Traffic: 2 KV_HEADS (position + 1) HD W bytes; 4 QUERY_HEADS SPLITS (HD + 2) bytes of parts stay in the L2.
    """
    begin = start(PDL, TRACE)
    GROUP: tl.constexpr = QUERY_HEADS // KV_HEADS
    kv_head = tl.program_id(0) // SPLITS
    split = tl.program_id(0) % SPLITS
    columns = tl.arange(0, HD)
    heads = kv_head * GROUP + tl.arange(0, GROUP)
    offsets = split * BLOCK + tl.arange(0, BLOCK)
    # A leading 1 that becomes the group: every thread then has its keys for all heads, without an exchange.
    cells = (kv_head * CONTEXT + offsets[None, :, None]) * HD + columns[None, None, :]
    position = tl.load(position_ptr)
    earlier = (offsets < position)[None, :, None]
    keys = tl.load(keys_ptr + cells, mask=earlier, other=0.0)
    values = tl.load(values_ptr + cells, mask=earlier, other=0.0)
    begin, end = wait(begin, PDL, TRACE)
    own = (offsets == position)[None, :, None]
    keys = tl.load(keys_ptr + cells, mask=own, other=keys)
    values = tl.load(values_ptr + cells, mask=own, other=values)
    LOG2_E: tl.constexpr = 1.4426950408889634
    query = tl.load(query_ptr + heads[:, None, None] * HD + columns[None, None, :]) * (LOG2_E / (HD**0.5))
    there = (offsets <= position)[None, :]
    scores = tl.where(there, tl.sum(keys.to(tl.float32) * query, 2), -1.0e30)
    peaks = tl.max(scores, 1)
    shares = tl.where(there, tl.exp2(scores - peaks[:, None]), 0.0)
    parts = tl.sum(shares[:, :, None] * values.to(tl.float32), 1)
    places = heads * SPLITS + split
    tl.store(parts_ptr + places[:, None] * HD + columns[None, :], parts)
    tl.store(peaks_ptr + places, peaks)
    tl.store(totals_ptr + places, tl.sum(shares, 1))
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def merge_splits(
    parts_ptr,
    peaks_ptr,
    totals_ptr,
    attended_ptr,
    HD: tl.constexpr,
    SPLITS: tl.constexpr,
    WIDTH: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """attended = the parts of a query head, each scaled to the greatest peak, over their total; float32 [heads, HD].

    One program a query head; arrays as attend_split leaves them; WIDTH is the next power of two to SPLITS.
    Traffic: 4 SPLITS (HD + 2) bytes a head, from the L2.
    """
    begin = start(PDL, TRACE)
    head = tl.program_id(0)
    columns = tl.arange(0, HD)
    splits = tl.arange(0, WIDTH)
    inside = splits < SPLITS
    begin, end = wait(begin, PDL, TRACE)
    places = head * SPLITS + splits
    peaks = tl.load(peaks_ptr + places, mask=inside, other=-1.0e30)
    totals = tl.load(totals_ptr + places, mask=inside, other=0.0)
    parts = tl.load(parts_ptr + places[:, None] * HD + columns[None, :], mask=inside[:, None], other=0.0)
    scales = tl.exp2(peaks - tl.max(peaks, 0))
    merged = tl.sum(parts * scales[:, None], 0) / tl.sum(totals * scales, 0)
    tl.store(attended_ptr + head * HD + columns, merged)
    finish(trace_ptr, begin, end, TRACE)
