"""What a step must move and compute, counted on the tensors themselves."""

from __future__ import annotations

import pytest
import torch

from kernels import workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama.weights import Weights
from kernels.workloads import Decode


def test_llama_1b_has_the_published_number_of_parameters() -> None:
    shape = workloads.LLAMA_1B
    assert shape.matrix_elements + shape.norm_elements == 1_235_814_400


def test_least_traffic_is_every_weight_once_and_every_row_of_the_context(tiny: Decode, tiny_weights: Weights) -> None:
    matrices_and_norms = tiny_weights.tensors()[:6]
    live = fresh_inputs.buffers(tiny, device="cpu", logits=torch.float32)
    caches = (*live.keys, *live.values)
    once = (*matrices_and_norms, *caches, live.logits, live.token_in, live.token)
    assert tiny.working_set_bytes == sum(tensor.numel() * tensor.element_size() for tensor in once)
    assert tiny.bytes_moved == tiny.working_set_bytes + tiny_weights.embedding[0].numel() * 4


def test_flops_are_those_of_the_matrix_products(tiny: Decode, tiny_weights: Weights) -> None:
    matrices = tiny_weights.tensors()[:5]
    attention = 2 * 2 * tiny.shape.query_heads * tiny.shape.head_dim * tiny.context * tiny.shape.layers
    assert tiny.flops == 2 * sum(matrix.numel() for matrix in matrices) + attention


def test_a_name_tells_model_context_and_number() -> None:
    assert [workload.name for workload in workloads.for_device("cuda")] == [
        f"decode/llama-1b/{size}-bf16"
        for size in ("b1-ctx512", "b1-gen32+127", "b1-ctx4096", "b8-ctx512", "b64-ctx512")
    ]
    assert [workload.name for workload in workloads.nightly("cuda")] == [
        "decode/llama-1b/b1-ctx512-bf16",
        "decode/llama-1b/b1-gen32+127-bf16",
    ]
    assert workloads.nightly("cpu") == workloads.for_device("cpu")
    assert [workload.name for workload in workloads.for_device("cpu")] == ["decode/llama-mini/b1-ctx128-fp32"]
    assert all(workloads.named(workload.name) is workload for workload in workloads.WORKLOADS)


def test_an_unknown_workload_is_named_with_those_there_are() -> None:
    with pytest.raises(KeyError, match=r"no workload 'decode/gpt'; there are decode/llama-1b"):
        workloads.named("decode/gpt")


@pytest.mark.parametrize("context", [0, 1])
def test_a_step_needs_an_earlier_position(context: int) -> None:
    with pytest.raises(ValueError, match=f"context {context}"):
        workloads.decode_workload("x", workloads.LLAMA_TINY, context=context, number="fp32", device="test")
