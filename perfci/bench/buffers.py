"""What the gate does to a step's buffers: poison them, copy them, take their fingerprint."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import torch
from torch import Tensor

# A chunk stays in a CPU's cache while it is summed; on a GPU it is large beside the launches that it takes.
_CPU_CHUNK_WORDS = 1 << 16
_DEVICE_CHUNK_WORDS = 1 << 21
_MIXER_SEED = 20


def poison(tensors: Iterable[Tensor]) -> None:
    """Overwrite with what no honest step writes: NaN, the least integer, the opposite of each truth value."""
    for tensor in tensors:
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            tensor.fill_(math.nan)
        elif tensor.dtype is torch.bool:
            tensor.logical_not_()
        else:
            limits = torch.iinfo(tensor.dtype)
            tensor.fill_(limits.min if limits.min < 0 else limits.max)


def snapshot(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def same_bits(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    """Unlike torch.equal, two NaNs of the same bits are the same here, and 0.0 is not -0.0."""
    if left.keys() != right.keys():
        return False
    pairs = [(left[name], right[name]) for name in left]
    if any((a.dtype, a.shape, a.device) != (b.dtype, b.shape, b.device) for a, b in pairs):
        return False
    if any(a.device.type == "cpu" and not torch.equal(_words(a), _words(b)) for a, b in pairs):
        return False
    # A device is asked once for all, not waited for at each.
    differ = [(_words(a) != _words(b)).any() for a, b in pairs if a.device.type != "cpu"]
    return not differ or not bool(torch.stack(differ).any())


def fingerprint(tensors: Sequence[Tensor]) -> tuple[tuple[int, int], ...]:
    """Two 64-bit sums a tensor over its bits, the second weighted by position: a change of any one word shows.

    It reads a tensor twice and needs two chunks of memory, where a copy would need a model's memory again.
    """
    sums = [_sums(_bytes(tensor)) for tensor in tensors]
    return tuple((int(plain), int(weighted)) for plain, weighted in sums)  # waits for the device once, at the first


def _sums(data: Tensor) -> tuple[Tensor, Tensor]:
    """Of 64-bit words, wrapping round; on the tensor's device, without waiting for it."""
    weights = _weights(data.device)
    whole = data.numel() // 8 * 8
    words = data[:whole]
    words = (words if words.storage_offset() % 8 == 0 else words.clone()).view(torch.int64)
    products = torch.empty_like(weights[: words.numel()])
    tail = data[whole:].to(torch.int64)
    plain = tail.sum()
    weighted = (tail * weights[: tail.numel()]).sum()
    for number, start in enumerate(range(0, words.numel(), weights.numel())):
        chunk = words[start : start + weights.numel()]
        product = torch.mul(chunk, weights[: chunk.numel()], out=products[: chunk.numel()])
        plain += chunk.sum()
        weighted += (2 * number + 1) * product.sum()
    return plain, weighted


@cache
def _weights(device: torch.device) -> Tensor:
    """One a word of a chunk; odd, so that no single changed word is multiplied away."""
    length = _CPU_CHUNK_WORDS if device.type == "cpu" else _DEVICE_CHUNK_WORDS
    generator = torch.Generator().manual_seed(_MIXER_SEED)
    drawn = torch.randint(-(2**62), 2**62, (length,), generator=generator, dtype=torch.int64)
    return (2 * drawn + 1).to(device)


def _words(tensor: Tensor) -> Tensor:
    """Its bits as integers of its elements' size, where there are such; one dimension."""
    size = {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(tensor.element_size(), torch.uint8)
    return tensor.detach().contiguous().reshape(-1).view(size)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
