"""Bytes and texts that are almost valid. Pure: the seeded `Random` decides."""

from collections.abc import Callable, Sequence
from random import Random

LONGEST_NOISE = 400

NAMES = (
    b"\xff",
    b"a\xc3",
    b"\x00",
    b"a\x00b",
    b"",
    b"\xed\xa0\x80",
    b"group\xff",
    b"n" * 40_000,
)
"""Names of headers that are no text, or hardly any."""

INTEGERS = (
    -(1 << 63),
    -(1 << 31) - 1,
    -1,
    0,
    1,
    2,
    63,
    64,
    1_000,
    1 << 31,
    (1 << 53) + 1,
    (1 << 62),
    (1 << 63) - 1,
)
"""The bounds of 32-bit and 64-bit integers, and their neighbours."""

TEXTS = (
    "",
    ".",
    "..",
    " ",
    "\x00",
    "a\x00b",
    "é" * 40,
    "../../etc",
    "' OR 1=1 --",
    "null",
    "\ud7ff\U0001f600",
    "x" * 300,
    "y" * 70_000,
)


def noise(rng: Random) -> bytes:
    """Random bytes."""
    return rng.randbytes(rng.randrange(LONGEST_NOISE))


def _flipped(rng: Random, sample: bytes) -> bytes:
    at = rng.randrange(len(sample))
    return sample[:at] + bytes([sample[at] ^ (1 << rng.randrange(8))]) + sample[at + 1 :]


def _cut(rng: Random, sample: bytes) -> bytes:
    return sample[: rng.randrange(len(sample))]


def _lengthened(rng: Random, sample: bytes) -> bytes:
    return sample + noise(rng)


def _overwritten(rng: Random, sample: bytes) -> bytes:
    at = rng.randrange(len(sample))
    piece = rng.choice((b"\xff" * 8, b"\x00" * 8, b"\xfe\xff\xff\xff\x0f", rng.randbytes(4)))
    return sample[:at] + piece + sample[at + len(piece) :]


def _doubled(rng: Random, sample: bytes) -> bytes:
    start, end = sorted(rng.choices(range(len(sample) + 1), k=2))
    return sample[:end] + sample[start:end] + sample[end:]


_CHANGES: Sequence[Callable[[Random, bytes], bytes]] = (
    _flipped,
    _flipped,
    _cut,
    _lengthened,
    _overwritten,
    _doubled,
)


def mutated(rng: Random, sample: bytes) -> bytes:
    """The sample, changed in one to four places."""
    for _ in range(rng.randint(1, 4)):
        sample = rng.choice(_CHANGES)(rng, sample) if sample else noise(rng)
    return sample


def spliced(rng: Random, samples: Sequence[bytes]) -> bytes:
    """The head of one sample and the tail of another."""
    head, tail = rng.choice(samples), rng.choice(samples)
    return head[: rng.randrange(len(head) + 1)] + tail[rng.randrange(len(tail) + 1) :]


def soup(rng: Random, words: Sequence[str]) -> str:
    """Words in any order."""
    return " ".join(rng.choices(words, k=rng.randint(1, 40)))


def retold(rng: Random, text: str, words: Sequence[str]) -> str:
    """The text with a few of its words dropped, doubled, swapped or replaced."""
    parts = text.split(" ")
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(parts))
        piece = rng.choice(([], [parts[at]] * 2, [rng.choice(words)], [rng.choice(TEXTS)]))
        parts[at : at + 1] = piece
        if not parts:
            return ""
    return " ".join(parts)


def wire_headers(
    rng: Random, headers: Sequence[tuple[str, bytes]] = ()
) -> tuple[tuple[bytes, bytes | None], ...]:
    """Headers with one more, or two, whose names no client of ours writes."""
    pairs: list[tuple[bytes, bytes | None]] = [(name.encode(), data) for name, data in headers]
    for _ in range(rng.randrange(1, 3)):
        data = rng.choice((None, b"", noise(rng)))
        pairs.insert(rng.randrange(len(pairs) + 1), (rng.choice((*NAMES, noise(rng))), data))
    return tuple(pairs)
