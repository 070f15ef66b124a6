"""The ring of weight tiles in shared memory: a warp fills it with the copy engine, the others take products from it."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from kernels.llama.megakernel.synchronization import thread_barrier


@gluon.jit
def fetch(
    tiles,
    slots,
    full,
    empty,
    first_tile,
    last_tile,
    STEPS: gl.constexpr,
    SLOTS: gl.constexpr,
    FLIGHT: gl.constexpr,
    ROWS: gl.constexpr,
    BYTES: gl.constexpr,
):
    """The warp that fills the ring. At most FLIGHT tiles are under way: a longer queue makes everyone's loads wait."""
    ahead = first_tile
    slot = first_tile * 0
    turn = first_tile * 0
    landed = first_tile * 0
    landed_turn = first_tile * 0
    for n in range((last_tile - first_tile) * STEPS):
        if turn > 0:
            mbarrier.wait(empty.index(slot), (turn - 1) & 1)
        if FLIGHT < SLOTS:
            if n >= FLIGHT:
                mbarrier.wait(full.index(landed), landed_turn)
                landed += 1
                if landed == SLOTS:
                    landed = 0
                    landed_turn = landed_turn ^ 1
        mbarrier.expect(full.index(slot), BYTES)
        tma.async_copy_global_to_shared(tiles, [ahead * ROWS, 0, 0], full.index(slot), slots.index(slot))
        ahead += 1
        if ahead == last_tile:
            ahead = first_tile
        slot += 1
        if slot == SLOTS:
            slot = 0
            turn += 1


@gluon.jit
def products(vector, slots, full, empty, slot, phase, SLOTS: gl.constexpr, H: gl.constexpr, WEIGHT: gl.constexpr):
    """The next tile times the vector: float32 [H] of its first and of its second H rows; the ring's state after.

    The fence orders this warp's loads from the slot before the copy engine's next bytes, which another proxy writes;
    without it nothing but the latency of a copy would (it costs nothing that was seen: NOTEBOOK section 6).
    """
    mbarrier.wait(full.index(slot), phase)
    low = slots.index(slot).slice(0, H).load(WEIGHT).to(gl.float32) * gl.expand_dims(vector, 0)
    high = slots.index(slot).slice(H, H).load(WEIGHT).to(gl.float32) * gl.expand_dims(vector, 0)
    low = gl.sum(low, axis=1)
    high = gl.sum(high, axis=1)
    fence_async_shared()
    thread_barrier()
    mbarrier.arrive(empty.index(slot), count=1)
    slot += 1
    if slot == SLOTS:
        slot = 0
        phase = phase ^ 1
    return gl.sum(low, axis=1), gl.sum(high, axis=1), slot, phase
