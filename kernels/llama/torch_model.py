"""The decode step in PyTorch operations, as a careful user would write it; three implementations launch it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels.llama.inputs import Buffers, buffers
from kernels.llama.weights import DTYPES, Weights
from kernels.workloads import Decode


class TorchLlama(nn.Module):
    """One step: fused query/key/value projection, scaled_dot_product_attention, fused gate/up projection.

    Activations are in the workload's number format, as PyTorch models run. It attends to exactly `position`
    + 1 rows, a slice rather than a mask over the whole cache: the most favourable case for PyTorch.

    Everything is a parameter or a buffer and `forward` takes and returns nothing, so that all addresses
    are fixed: torch.compile's CUDA graphs would copy any other input into place on each call.
    """

    token_in: Tensor
    position: Tensor
    logits: Tensor
    token: Tensor
    cosine: Tensor
    sine: Tensor

    def __init__(self, workload: Decode, weights: Weights, live: Buffers, position: int) -> None:
        super().__init__()
        shape = workload.shape
        self.shape = shape
        self.batch = workload.batch
        self.attended = position + 1
        frozen = _frozen
        self.embedding = frozen(weights.embedding)
        self.qkv = nn.ParameterList([frozen(rows) for rows in weights.qkv])
        self.out = nn.ParameterList([frozen(rows) for rows in weights.out])
        self.gate_up = nn.ParameterList([frozen(rows) for rows in weights.gate_up])
        self.down = nn.ParameterList([frozen(rows) for rows in weights.down])
        self.norms = nn.ParameterList([frozen(row) for row in weights.norms])
        dtype = DTYPES[workload.number]
        self.register_buffer("cosine", torch.cat([weights.cosine, weights.cosine], dim=-1).to(dtype))
        self.register_buffer("sine", torch.cat([-weights.sine, weights.sine], dim=-1).to(dtype))
        for name in ("token_in", "position", "logits", "token"):
            self.register_buffer(name, getattr(live, name))
        for layer, (keys, values) in enumerate(zip(live.keys, live.values, strict=True)):
            self.register_buffer(f"keys_{layer}", keys.unflatten(0, (self.batch, shape.kv_heads)))
            self.register_buffer(f"values_{layer}", values.unflatten(0, (self.batch, shape.kv_heads)))

    def forward(self) -> None:
        shape = self.shape
        x = self.embedding[self.token_in].view(self.batch, 1, shape.hidden)
        cosine, sine = self.cosine[self.position], self.sine[self.position]
        for layer in range(shape.layers):
            x = x + self._attention(self._normalized(x, 2 * layer), layer, cosine, sine)
            gate, up = functional.linear(self._normalized(x, 2 * layer + 1), self.gate_up[layer]).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, self.down[layer])
        logits = functional.linear(self._normalized(x, 2 * shape.layers), self.embedding).view(self.batch, -1)
        self.logits.copy_(logits)
        self.token.copy_(logits.argmax(dim=-1))

    def _normalized(self, x: Tensor, index: int) -> Tensor:
        return functional.rms_norm(x, (self.shape.hidden,), self.norms[index], self.shape.norm_epsilon)

    def _attention(self, x: Tensor, layer: int, cosine: Tensor, sine: Tensor) -> Tensor:
        shape = self.shape
        qkv = functional.linear(x, self.qkv[layer])
        query, key, value = qkv.split([shape.query_rows, shape.kv_rows, shape.kv_rows], dim=-1)
        query = _rotated(query.view(self.batch, 1, shape.query_heads, shape.head_dim).transpose(1, 2), cosine, sine)
        key = _rotated(key.view(self.batch, 1, shape.kv_heads, shape.head_dim).transpose(1, 2), cosine, sine)
        value = value.view(self.batch, 1, shape.kv_heads, shape.head_dim).transpose(1, 2)
        keys, values = getattr(self, f"keys_{layer}"), getattr(self, f"values_{layer}")
        keys.index_copy_(2, self.position, key)
        values.index_copy_(2, self.position, value)
        attended = functional.scaled_dot_product_attention(
            query, keys[:, :, : self.attended], values[:, :, : self.attended], enable_gqa=True
        )
        return functional.linear(attended.transpose(1, 2).reshape(self.batch, 1, -1), self.out[layer])


def _frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """x cos + (x with its halves swapped) sin; the first half of `sine` is negative."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([second, first], dim=-1) * sine


class TorchStep:
    """A TorchLlama with its buffers and a way to launch it; bound to one position."""

    def __init__(self, workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]) -> None:
        if workload.steps > 1:
            raise NotImplementedError(f"{workload.name}: PyTorch implementations make one step so far")
        self.position = int(inputs["position"])
        self.buffers = buffers(workload, device=weights.embedding.device, logits=DTYPES[workload.number])
        self.model = TorchLlama(workload, weights, self.buffers, self.position)
        self.launch: Callable[[], object] = self.model
        self.outputs: Mapping[str, Tensor] = self.buffers.outputs(self.position)
        self.scratch: Sequence[Tensor] = ()  # PyTorch allocates its own intermediates
        self.constants: Sequence[Tensor] = (*weights.tensors(), *self.buffers.constants(self.position))
        self.load(inputs)

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        if int(inputs["position"]) != self.position:
            raise ValueError(f"this step is bound to position {self.position}, not {int(inputs['position'])}")
        self.buffers.load(inputs)

    def __call__(self) -> None:
        with torch.no_grad():
            self.launch()
