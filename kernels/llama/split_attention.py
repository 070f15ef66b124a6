"""Attention over a long context: split over positions, so that all multiprocessors load keys and values, then merged.

The rules of operations.py hold here too. Two kernels rather than a merge inside the output projection: each of its
programs would read all parts again, 8 KB a split and program at 32 heads of 64, where the merge reads them once.
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
    HEADS: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """Softmax attention over BLOCK positions, for HEADS query heads that share one key and value head and its loads.

    query float32 [QUERY_HEADS, HD]; keys, values [KV_HEADS, C, HD]. With s = q k^T / sqrt(HD) in base 2 over the
    block's positions up to `position`: peaks = max s, totals = sum 2^(s - peak), float32 [SPLITS, QUERY_HEADS], and
    parts = sum 2^(s - peak) v, float32 [SPLITS, QUERY_HEADS, HD]. A block without such a position gives -1e30, 0
    and 0. Program: (query head / HEADS) x SPLITS + split; SPLITS BLOCK >= C. The block is in registers before the wait
    but for the step's own row, which is loaded over its place afterwards.
    Traffic: 2 KV_HEADS (position + 1) HD W bytes; 4 QUERY_HEADS SPLITS (HD + 2) bytes of parts stay in the L2.
    """
    begin = start(PDL, TRACE)
    first_head = (tl.program_id(0) // SPLITS) * HEADS
    kv_head = first_head // (QUERY_HEADS // KV_HEADS)
    split = tl.program_id(0) % SPLITS
    columns = tl.arange(0, HD)
    offsets = split * BLOCK + tl.arange(0, BLOCK)
    cells = (kv_head * CONTEXT + offsets[:, None]) * HD + columns[None, :]
    position = tl.load(position_ptr)
    keys = tl.load(keys_ptr + cells, mask=(offsets < position)[:, None], other=0.0)
    values = tl.load(values_ptr + cells, mask=(offsets < position)[:, None], other=0.0)
    begin, end = wait(begin, PDL, TRACE)
    queries = query_ptr + first_head * HD + columns
    query = tl.load(queries)
    own = (offsets == position)[:, None]
    keys = tl.load(keys_ptr + cells, mask=own, other=keys)
    values = tl.load(values_ptr + cells, mask=own, other=values)
    there = offsets <= position
    LOG2_E: tl.constexpr = 1.4426950408889634
    for member in tl.static_range(HEADS):
        ahead = query
        if member + 1 < HEADS:
            ahead = tl.load(queries + (member + 1) * HD)
        query *= LOG2_E / (HD**0.5)
        scores = tl.where(there, tl.sum(keys.to(tl.float32) * query[None, :], 1), -1.0e30)
        peak = tl.max(scores, 0)
        shares = tl.where(there, tl.exp2(scores - peak), 0.0)
        place = split * QUERY_HEADS + first_head + member
        tl.store(parts_ptr + place * HD + columns, tl.sum(shares[:, None] * values.to(tl.float32), 0))
        tl.store(peaks_ptr + place, peak)
        tl.store(totals_ptr + place, tl.sum(shares, 0))
        query = ahead
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def merge_splits(
    parts_ptr,
    peaks_ptr,
    totals_ptr,
    attended_ptr,
    QUERY_HEADS: tl.constexpr,
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
    places = splits * QUERY_HEADS + head
    peaks = tl.load(peaks_ptr + places, mask=inside, other=-1.0e30)
    totals = tl.load(totals_ptr + places, mask=inside, other=0.0)
    parts = tl.load(parts_ptr + places[:, None] * HD + columns[None, :], mask=inside[:, None], other=0.0)
    scales = tl.exp2(peaks - tl.max(peaks, 0))
    merged = tl.sum(parts * scales[:, None], 0) / tl.sum(totals * scales, 0)
    tl.store(attended_ptr + head * HD + columns, merged)
    finish(trace_ptr, begin, end, TRACE)
