"""Normal numbers from a cipher: AES-256 in counter mode under keys that are used once, turned by Box and Muller.

    u1 = (52 random bits + 1/2) / 2^52, never 0 nor 1;   u2 = 1 + 52 random bits / 2^52
    r = sqrt(-2 log u1);   r cos(2 pi u2), r sin(2 pi u2)

Nobody without the key can tell these from others, nor draw them again, and with a processor that has AES they take
half the time of NumPy's generators. No number is further out than 8.6 deviations; a true one is with probability
1e-17, which is what a cell adds to delta at most, far below any delta in use.
"""

from __future__ import annotations

import math
import secrets

import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from torch import Tensor

from colonnade.privacy.side_by_side import side_by_side

WORTH_A_THREAD = 2**16  # bytes of one stream from which drawing it in a thread pays
_KEY, _BLOCK, _WORD = 32, 16, 8  # bytes


def cipher_normals(streams: int, count: int, deviation: float = 1.0) -> Tensor:
    """(streams, count) independent draws in float64, each stream under a key of its own from the operating system."""
    half = (count + 1) // 2
    number = _between_one_and_two(streams, 2 * half)
    radius = (
        number[:, :half].sub_(1 - 2.0**-53).log_().mul_(-2).sqrt_().mul_(deviation)
    )  # never deviation^2: it underflows
    angle = number[:, half:].mul_(2 * math.pi)  # a turn more makes no difference
    cosine = torch.cos(angle)
    angle.sin_().mul_(radius)
    radius.mul_(cosine)
    return number[:, :count]


def cipher_uniforms(streams: int, count: int) -> Tensor:
    """(streams, count) uniform numbers k / 2^52 with k from 1 to 2^52, each stream under a key of its own."""
    return 2 - _between_one_and_two(streams, count)


def _between_one_and_two(streams: int, count: int) -> Tensor:
    """52 random bits as the fraction of a float64 with exponent 0: the cheapest way to equidistant numbers."""
    length, nothing = _WORD * count, bytes(_WORD * count)
    words = torch.empty(streams * count + _BLOCK // _WORD, dtype=torch.int64)  # room for a block more, as it asks for
    view = memoryview(words.numpy().data).cast("B")

    def encrypt(number: int) -> None:
        cipher = Cipher(AES(secrets.token_bytes(_KEY)), CTR(bytes(_BLOCK))).encryptor()
        cipher.update_into(nothing, view[number * length : (number + 1) * length + _BLOCK - 1])

    if streams > 1 and length >= WORTH_A_THREAD:
        side_by_side(encrypt, streams)
    else:
        for number in range(streams):
            encrypt(number)
    random = words[: streams * count].view(streams, count)
    return random.bitwise_and_(2**52 - 1).bitwise_or_(1023 << 52).view(torch.float64)
