"""A step's buffers: where they lie, what guards them, and that the gate sees a write beyond them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels import reference, workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama.inputs import GUARD_BYTES, Buffers
from kernels.llama.pipeline import ModularStep
from kernels.llama.torch_model import TorchStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode
from perfci.bench import gate
from perfci.bench.case import Case
from perfci.bench.faults import IncorrectOutput
from perfci.model import Workload
from tests.kernels.conftest import SMALL_TILES

BUFFERS = ("token_in", "position", "token", "logits", "key_cache", "value_cache")


@pytest.fixture(params=["b1-ctx21", "b1-gen5+6", "b4-ctx21"])
def live(request: pytest.FixtureRequest) -> Buffers:
    workload = workloads.named(f"decode/llama-tiny/{request.param}-fp32")
    return fresh_inputs.buffers(workload, device="cpu", logits=torch.float32)


def start(tensor: Tensor) -> int:
    return tensor.storage_offset() * tensor.element_size()


def test_every_buffer_lies_between_two_guards_in_an_allocation_of_its_own(live: Buffers) -> None:
    for name in BUFFERS:
        buffer = getattr(live, name)
        storage = buffer.untyped_storage()
        before, after = (g for g in live.guards if g.untyped_storage().data_ptr() == storage.data_ptr())
        assert (start(before), before.nbytes) == (0, GUARD_BYTES)
        assert start(buffer) == GUARD_BYTES and buffer.is_contiguous()
        assert start(after) == GUARD_BYTES + buffer.nbytes and after.nbytes == GUARD_BYTES
        assert storage.nbytes() == 2 * GUARD_BYTES + buffer.nbytes
    assert len(live.guards) == 2 * len(BUFFERS)


def test_the_layers_of_a_cache_are_views_of_one_allocation_aligned_to_256_bytes(live: Buffers) -> None:
    for cache, layers in ((live.key_cache, live.keys), (live.value_cache, live.values)):
        assert len(layers) == cache.shape[0]
        for number, layer in enumerate(layers):
            assert layer.data_ptr() == cache[number].data_ptr() and layer.shape == cache.shape[1:]
            assert start(layer) % 256 == 0


def test_the_layers_of_the_1b_caches_are_aligned_to_256_bytes() -> None:
    for workload in workloads.for_device("cuda"):
        live = fresh_inputs.buffers(workload, device="meta", logits=torch.float32)
        assert all(start(tensor) % 256 == 0 for tensor in (*live.keys, *live.values, live.logits, live.token))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int32])
def test_a_guard_holds_what_nobody_computes(dtype: torch.dtype) -> None:
    inner, bands = fresh_inputs.guarded((3, 5), dtype=dtype, device="cpu")
    assert inner.shape == (3, 5)
    for band in bands:
        if dtype.is_floating_point:
            assert bool(band.isnan().all()) and bool(inner.isnan().all())
            made = torch.full((1,), float("nan"), dtype=dtype)
            assert not torch.equal(band[:1].view(torch.uint8), made.view(torch.uint8))
        else:
            assert bool((band > 10**9).all()) and not bool(inner.any())


def test_all_that_the_steps_of_a_generation_do_not_write_is_constant() -> None:
    workload = workloads.named("decode/llama-tiny/b1-gen5+6-fp32")
    live = fresh_inputs.buffers(workload, device="cpu", logits=torch.float32)
    elements = live.key_cache.numel() + live.value_cache.numel()
    for position in (5, 2):
        outputs = live.outputs(position)
        written = sum(rows.numel() for name, rows in outputs.items() if name not in {"token", "logits"})
        held = sum(tensor.numel() for tensor in live.constants(position)) - sum(g.numel() for g in live.guards)
        assert written + held == elements
        assert outputs["keys.1"].shape == (2, 6, 32) and outputs["token"].shape == (6,)


def refused(prepare, workload: Decode, weights: Weights) -> None:
    case = Case(
        workload=Workload(workload.name),
        implementation="faulty",
        fresh_inputs=lambda seed: fresh_inputs.fresh(workload, weights, seed),
        reference=lambda inputs: reference.decode(workload, weights, inputs, dtype=torch.float64),
        prepare=prepare,
        tolerance=2e-5,
        exact=("token",),
        repeats=1,
    )
    with pytest.raises(IncorrectOutput, match="changed its constants"):
        gate.check(case, seed=1)


def beyond(buffer: Tensor, side: str) -> Tensor:
    """The one element before or after a buffer."""
    index = buffer.storage_offset() + (-1 if side == "before" else buffer.numel())
    return torch.as_strided(buffer, (1,), (1,), index)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("name", BUFFERS)
def test_the_gate_refuses_a_torch_step_that_writes_one_element(
    name: str, side: str, tiny: Decode, tiny_weights: Weights
) -> None:
    def prepare(inputs) -> TorchStep:
        step = TorchStep(tiny, tiny_weights, inputs)
        right = step.launch

        def faulty() -> None:
            right()
            beyond(getattr(step.buffers, name), side).fill_(0)

        step.launch = faulty
        return step

    refused(prepare, tiny, tiny_weights)


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_gate_refuses_a_modular_step_that_writes_one_logit(side: str, tiny: Decode, tiny_weights: Weights) -> None:
    def prepare(inputs) -> ModularStep:
        step = ModularStep(tiny, tiny_weights, inputs, tiles=SMALL_TILES)
        step.plan = (*step.plan, lambda: beyond(step.buffers.logits, side).fill_(float("nan")))
        return step

    refused(prepare, tiny, tiny_weights)


@pytest.mark.parametrize("name", ["token_in", "position"])
def test_the_gate_refuses_a_step_that_moves_what_it_was_given(name: str, tiny: Decode, tiny_weights: Weights) -> None:
    def prepare(inputs) -> TorchStep:
        step = TorchStep(tiny, tiny_weights, inputs)
        right = step.launch

        def faulty() -> None:
            right()
            getattr(step.buffers, name).add_(1).remainder_(21)

        step.launch = faulty
        return step

    refused(prepare, tiny, tiny_weights)
