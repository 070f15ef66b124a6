"""Decode steps in PyTorch operations, as a careful user would write them; four implementations launch them."""

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
        self.attended = position + workload.steps
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
        logits = self._step(self.token_in, self.position)
        self.logits.copy_(logits)
        self.token.copy_(logits.argmax(dim=-1))

    def _step(self, token: Tensor, position: Tensor) -> Tensor:
        """[batch], [1] -> logits [batch, vocab], keys and values appended."""
        x = self.embedding[token][:, None]
        rotation = self.cosine[position], self.sine[position]
        for layer in range(self.shape.layers):
            x = x + self._attention(self._normalized(x, 2 * layer), layer, position, rotation)
            gate, up = functional.linear(self._normalized(x, 2 * layer + 1), self.gate_up[layer]).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, self.down[layer])
        return functional.linear(self._normalized(x, 2 * self.shape.layers), self.embedding)[:, 0]

    def _normalized(self, x: Tensor, index: int) -> Tensor:
        return functional.rms_norm(x, (self.shape.hidden,), self.norms[index], self.shape.norm_epsilon)

    def _attention(self, x: Tensor, layer: int, position: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        shape = self.shape
        qkv = functional.linear(x, self.qkv[layer]).unflatten(-1, (-1, shape.head_dim)).transpose(1, 2)
        query, key, value = qkv.split([shape.query_heads, shape.kv_heads, shape.kv_heads], dim=1)
        keys, values = getattr(self, f"keys_{layer}"), getattr(self, f"values_{layer}")
        keys.index_copy_(2, position, _rotated(key, *rotation))
        values.index_copy_(2, position, value)
        there = slice(0, self.attended)
        attended = self._attend(_rotated(query, *rotation), keys[:, :, there], values[:, :, there])
        return functional.linear(attended.transpose(1, 2).reshape(self.batch, 1, -1), self.out[layer])

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)


class TorchGeneration(TorchLlama):
    """One of several steps: it takes the token that the step before it picked, and moves on to the next position.

    All steps are the same program, so that one captured graph is replayed for each: caches of a fixed length, as
    PyTorch users have for this, and attention masked to the positions that are there. The queries of a group share
    a key head and a mask, so they go to scaled_dot_product_attention as rows of one head: with a mask it has no
    fast kernel for grouped queries. `restart` brings back the first step.
    """

    fed: Tensor
    now: Tensor
    number: Tensor
    offsets: Tensor

    def __init__(self, workload: Decode, weights: Weights, live: Buffers, position: int) -> None:
        super().__init__(workload, weights, live, position)
        self.first = position
        self.unwritten = [
            cache[:, :, position : self.attended] for cache in (live.key_cache, live.value_cache)
        ]  # of all layers
        self.register_buffer("fed", torch.zeros_like(live.token_in))
        self.register_buffer("now", torch.zeros_like(live.position))
        self.register_buffer("number", torch.zeros_like(live.position))
        self.register_buffer("offsets", torch.arange(self.attended, device=live.position.device))

    def restart(self) -> None:
        self.fed.copy_(self.token_in)
        self.now.copy_(self.position)
        self.number.zero_()
        for rows in self.unwritten:
            rows.zero_()  # masked rows are multiplied by zero, which does not make a number of what is none

    def forward(self) -> None:
        logits = self._step(self.fed, self.now)
        self.logits.copy_(logits)
        picked = logits.argmax(dim=-1)
        self.token.view(-1, self.batch).index_copy_(0, self.number, picked[None])
        self.fed.copy_(picked)
        self.now.add_(1)
        self.number.add_(1)

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        grouped = query.reshape(self.batch, self.shape.kv_heads, -1, self.shape.head_dim)
        there = (self.offsets <= self.now)[None, None, None]
        attended = functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=there)
        return attended.reshape(query.shape)


def _frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """x cos + (x with its halves swapped) sin; the first half of `sine` is negative."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([second, first], dim=-1) * sine


class TorchStep:
    """A TorchLlama with its buffers and a way to launch it; bound to one first position.

    launch: makes one step, in whatever way the implementation does that.
    """

    def __init__(self, workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]) -> None:
        self.position = int(inputs["position"])
        self.steps = workload.steps
        self.buffers = buffers(workload, device=weights.embedding.device, logits=DTYPES[workload.number])
        kind = TorchLlama if workload.steps == 1 else TorchGeneration
        self.model = kind(workload, weights, self.buffers, self.position)
        self.launch: Callable[[], object] = self.model
        self.outputs: Mapping[str, Tensor] = self.buffers.outputs(self.position)
        self.scratch: Sequence[Tensor] = ()  # PyTorch allocates its own intermediates
        self.constants: Sequence[Tensor] = (*weights.tensors(), *self.buffers.constants(self.position))
        self.load(inputs)

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        if int(inputs["position"]) != self.position:
            raise ValueError(f"this step is bound to position {self.position}, not {int(inputs['position'])}")
        self.buffers.load(inputs)
        self.restart()

    def restart(self) -> None:
        if isinstance(self.model, TorchGeneration):
            self.model.restart()

    def __call__(self) -> None:
        with torch.no_grad():
            self.restart()
            for _ in range(self.steps):
                self.launch()
