"""What a step must move and compute, counted on the tensors themselves."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from kernels import workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama.weights import Weights
from kernels.workloads import Decode

TINY = "decode/llama-tiny/{}-fp32"


def test_llama_1b_has_the_published_number_of_parameters() -> None:
    shape = workloads.LLAMA_1B
    assert shape.matrix_elements + shape.norm_elements == 1_235_814_400


def bytes_of(*tensors: torch.Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_least_traffic_is_every_weight_once_and_every_row_of_the_context(tiny: Decode, tiny_weights: Weights) -> None:
    matrices_and_norms = tiny_weights.tensors()[:6]
    live = fresh_inputs.buffers(tiny, device="cpu", logits=torch.float32)
    once = (*matrices_and_norms, live.key_cache, live.value_cache, live.logits, live.token_in, live.token)
    assert tiny.working_set_bytes == bytes_of(*once)
    assert tiny.bytes_moved == tiny.working_set_bytes + bytes_of(tiny_weights.embedding[0])


def test_flops_are_those_of_the_matrix_products(tiny: Decode, tiny_weights: Weights) -> None:
    matrices = tiny_weights.tensors()[:5]
    attention = 2 * 2 * tiny.shape.query_heads * tiny.shape.head_dim * tiny.context * tiny.shape.layers
    assert tiny.flops == 2 * sum(matrix.numel() for matrix in matrices) + attention


def test_a_batch_reads_the_weights_once_and_multiplies_them_for_each_sequence(tiny_weights: Weights) -> None:
    one, four = workloads.named(TINY.format("b1-ctx21")), workloads.named(TINY.format("b4-ctx21"))
    weights = bytes_of(*tiny_weights.tensors()[:6])
    assert four.bytes_moved - weights == 4 * (one.bytes_moved - weights)
    assert four.working_set_bytes - weights == 4 * (one.working_set_bytes - weights)
    assert (four.flops, four.tokens) == (4 * one.flops, 4)
    live = fresh_inputs.buffers(four, device="cpu", logits=torch.float32)
    ends = (live.key_cache, live.value_cache, live.logits, live.token_in, live.token)
    assert four.working_set_bytes == weights + bytes_of(*ends)


def test_a_generation_costs_what_its_steps_cost_one_by_one_but_for_the_logits_between() -> None:
    whole = workloads.named(TINY.format("b1-gen5+6"))
    assert (whole.context, whole.steps, whole.first_position, whole.position, whole.tokens) == (11, 6, 5, 10, 6)
    steps = [dataclasses.replace(whole, context=context, steps=1) for context in range(6, 12)]
    assert [step.position for step in steps] == [5, 6, 7, 8, 9, 10]
    assert whole.flops == sum(step.flops for step in steps)
    handed_on = 5 * (4 * whole.shape.vocab + 8)  # logits that need not be written, tokens that need not be read
    assert whole.bytes_moved == sum(step.bytes_moved for step in steps) - handed_on
    assert whole.working_set_bytes == steps[-1].working_set_bytes + 5 * 8


def test_a_name_tells_model_batch_context_and_number() -> None:
    assert [workload.name for workload in workloads.WORKLOADS] == [
        *(
            f"decode/llama-1b/{size}-bf16"
            for size in ("b1-ctx512", "b1-gen32+127", "b1-ctx4096", "b8-ctx512", "b64-ctx512")
        ),
        "decode/llama-mini/b1-ctx128-fp32",
        *(TINY.format(size) for size in ("b1-ctx21", "b1-gen5+6", "b4-ctx21")),
    ]
    assert all(workloads.named(workload.name) is workload for workload in workloads.WORKLOADS)


def test_a_night_measures_one_step_and_one_generation_and_a_cpu_its_own_size() -> None:
    assert [workload.name for workload in workloads.chosen("nightly", "cuda")] == [
        "decode/llama-1b/b1-ctx512-bf16",
        "decode/llama-1b/b1-gen32+127-bf16",
    ]
    assert [workload.name for workload in workloads.chosen("nightly", "cpu")] == ["decode/llama-mini/b1-ctx128-fp32"]


def test_every_workload_of_a_device_is_in_a_group_and_may_be_chosen_by_name() -> None:
    for device in ("cuda", "cpu"):
        assert workloads.chosen("all", device) == workloads.for_device(device)
        named = {name for group, names in workloads.GROUPS.items() if group != "all" for name in names}
        for workload in workloads.for_device(device):
            assert workload.name in named
            assert workloads.chosen(workload.name, device) == (workload,)


def test_a_group_that_has_nothing_for_a_device_is_refused_with_those_that_have() -> None:
    with pytest.raises(ValueError, match="nothing in 'batch' is for the device cpu; try the groups nightly, all"):
        workloads.chosen("batch", "cpu")
    with pytest.raises(KeyError, match="no group or workload 'bacth'; there are the groups nightly, ctx512"):
        workloads.chosen("bacth", "cuda")


def test_an_unknown_workload_is_named_with_those_there_are() -> None:
    with pytest.raises(KeyError, match=r"no workload 'decode/gpt'; there are decode/llama-1b"):
        workloads.named("decode/gpt")


@pytest.mark.parametrize(("context", "steps"), [(0, 1), (1, 1), (6, 6), (5, 6)])
def test_a_step_needs_an_earlier_position(context: int, steps: int) -> None:
    with pytest.raises(ValueError, match=f"context {context} after {steps} steps"):
        workloads.decode_workload("x", workloads.LLAMA_TINY, context=context, number="fp32", device="test", steps=steps)


@pytest.mark.parametrize(("batch", "steps"), [(0, 1), (1, 0), (-1, 1)])
def test_a_workload_without_sequences_or_steps_is_refused(batch: int, steps: int) -> None:
    sizes = {"context": 21, "batch": batch, "steps": steps}
    with pytest.raises(ValueError, match=f"batch {batch}, steps {steps}"):
        workloads.decode_workload("x", workloads.LLAMA_TINY, number="fp32", device="test", **sizes)
