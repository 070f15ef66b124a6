"""What the gate does to a step's buffers: poison them, copy them, take their fingerprint."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

_CHUNK_WORDS = 1 << 21  # 16 MiB: small beside a model, large beside a launch
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
    return all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and torch.equal(_bytes(left[name]), _bytes(right[name]))
        for name in left
    )


def fingerprint(tensors: Sequence[Tensor]) -> tuple[tuple[int, int], ...]:
    """Two 64-bit sums a tensor over its bits, the second weighted by position: a change of any one word shows.

    It reads a tensor twice and needs 32 MiB beside it, where a copy would need a model's memory again.
    """
    return tuple(_sums(_bytes(tensor)) for tensor in tensors)


def _sums(data: Tensor) -> tuple[int, int]:
    whole = data.numel() // 8 * 8
    words = data[:whole]
    words = (words if words.storage_offset() % 8 == 0 else words.clone()).view(torch.int64)
    weights = _weights(min(_CHUNK_WORDS, max(1, words.numel())), data.device)
    plain, weighted = 0, 0
    for number, chunk in enumerate(_chunks(words)):
        plain += int(chunk.sum())
        weighted += (2 * number + 1) * int((chunk * weights[: chunk.numel()]).sum())
    tail = data[whole:].to(torch.int64)
    tail_sum = int((tail * _weights(max(1, tail.numel()), data.device)[: tail.numel()]).sum())
    return (plain + tail_sum) % 2**64, (weighted + tail_sum) % 2**64


def _chunks(words: Tensor) -> Iterator[Tensor]:
    return (words[start : start + _CHUNK_WORDS] for start in range(0, words.numel(), _CHUNK_WORDS))


def _weights(length: int, device: torch.device) -> Tensor:
    """Odd, so that no single changed word is multiplied away."""
    generator = torch.Generator().manual_seed(_MIXER_SEED)
    drawn = torch.randint(-(2**62), 2**62, (length,), generator=generator, dtype=torch.int64)
    return (2 * drawn + 1).to(device)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
