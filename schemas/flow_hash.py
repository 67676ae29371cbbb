"""The hash by which keys are spread over key ranges: the upper 32 bits of HighwayHash-64.

It is computed for many packed keys together: each step of the hash is one on arrays. The key of
the hash is fixed, so every party assigns a key to the same range.

Source: J. Alakuijala, B. Cox, J. Wassenberg, "Fast keyed hash/pseudo-random function using SIMD
multiply and permute", 2016, arXiv 1612.06257; the fixed key is Estuary Flow's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
"""Shape: four lanes, rows."""
Offsets = NDArray[np.int64]

KEY = bytes.fromhex("ba737e89155238d47d8067c35aad4d25ecdd1c3488227e011ffa480c022bd3ba")
FIRST, LAST = 0, 0xFFFFFFFF
PACKET = 32
HALF_PACKET = PACKET // 2

_MUL0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_PERMUTED = [2, 3, 0, 1]


def key_hash(keys: Sequence[bytes]) -> NDArray[np.uint32]:
    """The hash of each packed key."""
    ends = np.cumsum(np.fromiter(map(len, keys), np.int64, len(keys)))
    begins = np.concatenate((np.zeros(min(1, len(keys)), np.int64), ends[:-1]))
    return hash_slices(b"".join(keys), begins, ends)


def hash_slices(arena: bytes, begins: Offsets, ends: Offsets) -> NDArray[np.uint32]:
    """The hash of each slice [begin, end) of an arena; slices may overlap."""
    return (highway(KEY, arena, begins, ends) >> _HALF).astype(np.uint32)


def highway(key: bytes, arena: bytes, begins: Offsets, ends: Offsets) -> Words:
    """HighwayHash-64 of each slice of an arena, under a key of 32 bytes. Shape: rows."""
    data = np.frombuffer(arena + bytes(PACKET), np.uint8)
    state = _begin(key, len(begins))
    sizes = ends - begins
    whole = sizes // PACKET
    for packet in range(int(whole.max(initial=0))):
        rows = np.flatnonzero(whole > packet)
        part = state.take(rows)
        part.update(_lanes(_gather(data, begins[rows] + PACKET * packet)))
        state.put(rows, part)
    rows = np.flatnonzero(sizes % PACKET)
    part = state.take(rows)
    part.remainder(data, ends[rows], (sizes % PACKET)[rows])
    state.put(rows, part)
    return state.finish()


@dataclass(slots=True)
class _State:
    """Four groups of four lanes for each row; arithmetic wraps at 64 bits."""

    v0: Words
    v1: Words
    mul0: Words
    mul1: Words

    def take(self, rows: Offsets) -> "_State":
        return _State(
            self.v0[:, rows], self.v1[:, rows], self.mul0[:, rows], self.mul1[:, rows]
        )

    def put(self, rows: Offsets, part: "_State") -> None:
        self.v0[:, rows], self.v1[:, rows] = part.v0, part.v1
        self.mul0[:, rows], self.mul1[:, rows] = part.mul0, part.mul1

    def update(self, lanes: Words) -> None:
        self.v1 = self.v1 + self.mul0 + lanes
        self.mul0 = self.mul0 ^ ((self.v1 & _LOW) * (self.v0 >> _HALF))
        self.v0 = self.v0 + self.mul1
        self.mul1 = self.mul1 ^ ((self.v0 & _LOW) * (self.v1 >> _HALF))
        self.v0 = self.v0 + _zipped(self.v1)
        self.v1 = self.v1 + _zipped(self.v0)

    def remainder(self, data: NDArray[np.uint8], ends: Offsets, sizes: Offsets) -> None:
        """Add the last 1 to 31 bytes of each row."""
        counts = sizes.astype(np.uint64)
        self.v0 = self.v0 + ((counts << _HALF) + counts)
        self.v1 = _rotated_halves(self.v1, counts)
        self.update(_lanes(_last_packet(data, ends, sizes)))

    def finish(self) -> Words:
        for _ in range(4):
            permuted = self.v0[_PERMUTED]
            self.update((permuted >> _HALF) | (permuted << _HALF))
        total: Words = self.v0[0] + self.v1[0] + self.mul0[0] + self.mul1[0]
        return total


def _begin(key: bytes, rows: int) -> _State:
    words = np.frombuffer(key, "<u8").astype(np.uint64)[:, None]
    mul0 = np.repeat(np.array(_MUL0, np.uint64)[:, None], rows, axis=1)
    mul1 = np.repeat(np.array(_MUL1, np.uint64)[:, None], rows, axis=1)
    return _State(mul0 ^ words, mul1 ^ ((words >> _HALF) | (words << _HALF)), mul0, mul1)


# Of each pair of lanes (16 bytes, the even lane first), the bytes in the order in which the
# pair is added to the other group.
_ZIPPER = [3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7]


def _zipped(lanes: Words) -> Words:
    rows = lanes.shape[1]
    pairs = np.ascontiguousarray(lanes.T).astype("<u8").view(np.uint8).reshape(rows, 2, 16)
    shuffled = np.ascontiguousarray(pairs[:, :, _ZIPPER]).reshape(rows, PACKET)
    return _lanes(shuffled)


def _lanes(packets: NDArray[np.uint8]) -> Words:
    """Packets of 32 bytes as lanes. Shape: rows, 32 to four, rows."""
    words = np.ascontiguousarray(packets).view("<u8").astype(np.uint64)
    return np.ascontiguousarray(words.T)


def _gather(data: NDArray[np.uint8], begins: Offsets) -> NDArray[np.uint8]:
    packets: NDArray[np.uint8] = data[begins[:, None] + np.arange(PACKET)]
    return packets


def _rotated_halves(lanes: Words, counts: Words) -> Words:
    """Both halves of each lane, rotated left by the row's count, which is below 32."""
    low, high = lanes & _LOW, lanes >> _HALF
    back = _HALF - counts
    low = ((low << counts) | (low >> back)) & _LOW
    high = ((high << counts) | (high >> back)) & _LOW
    return (high << _HALF) | low


def _last_packet(data: NDArray[np.uint8], ends: Offsets, sizes: Offsets) -> NDArray[np.uint8]:
    """The last bytes of each row in a packet: whole words first, then what is left of one.

    Of 16 bytes and more the last four end the packet; of fewer, the first, middle and last of
    what is left follow at byte 16.
    """
    begins, odd = ends - sizes, sizes % 4
    packets = _gather(data, begins)
    packets[np.arange(PACKET) >= (sizes - odd)[:, None]] = 0
    long = np.flatnonzero(sizes >= HALF_PACKET)
    packets[long[:, None], np.arange(28, 32)] = data[ends[long, None] + np.arange(-4, 0)]
    short = np.flatnonzero((sizes < HALF_PACKET) & (odd > 0))
    rest, left = ends[short] - odd[short], odd[short]
    packets[short[:, None], [16, 17, 18]] = data[
        np.stack((rest, rest + left // 2, rest + left - 1), axis=1)
    ]
    return packets
