"""The hash of key ranges: published vectors, and many keys together as each alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import flow_hash, flow_tuple

# HighwayHash-64 of the bytes 0, 1, .. n - 1 under the key 0 .. 31, as its authors publish them.
PUBLISHED = [
    0x907A56DE22C26E53, 0x7EAB43AAC7CDDD78, 0xB8D0569AB0B53D62, 0x5C6BEFAB8A463D80,
    0xF205A46893007EDA, 0x2B8A1668E4A94541, 0xBD4CCC325BEFCA6F, 0x4D02AE1738F59482,
    0xE1205108E55F3171, 0x32D2644EC77A1584, 0xF6E10ACDB103A90B, 0xC3BBF4615B415C15,
    0x243CC2040063FA9C, 0xA89A58CE65E641FF, 0x24B031A348455A23, 0x40793F86A449F33B,
    0xCFAB3489F97EB832, 0x19FE67D2C8C5C0E2, 0x04DD90A69C565CC2, 0x75D9518E2371C504,
    0x38AD9B1141D3DD16, 0x0264432CCD8A70E0, 0xA9DB5A6288683390, 0xD7B05492003F028C,
    0x205F615AEA59E51E, 0xEEE0C89621052884, 0x1BFC1A93A7284F4F, 0x512175B5B70DA91D,
    0xF71F8976A0A2C639, 0xAE093FEF1F84E3E7, 0x22CA92B01161860F, 0x9FC7007CCF035A68,
    0xA0C964D9ECD580FC, 0x2C90F73CA03181FC, 0x185CF84E5691EB9E, 0x4FC1F5EF2752AA9B,
    0xF5B7391A5E0A33EB, 0xB9B84B83B4E96C9C, 0x5E42FE712A5CD9B4, 0xA150F2F90C3F97DC,
]  # fmt: skip

# Packed tuples under the protocol's key, as other implementations of it pin them.
RANGES = [
    (0xB9F08D38, (True,)), (0x1505E3CB, (False,)), (0x6AE719F3, ("foo", "bar")),
    (0x8ADDDD61, ("foobar",)), (0x7273E587, ("foobas",)), (0xF4EC4D33, ("1",)),
    (0x1E023D95, ("2",)), (0x17751BAE, ("10",)), (0x3C90C1D9, (1,)), (0x97901BAC, (2,)),
    (0xCBC7F1E2, (3,)), (0xD1D3F3EB, (10,)),
]  # fmt: skip


def test_the_hash_is_the_published_one():
    arena = bytes(range(len(PUBLISHED)))
    ends = np.arange(len(PUBLISHED))
    hashes = flow_hash.highway(bytes(range(32)), arena, np.zeros_like(ends), ends)
    assert [hex(value) for value in hashes.tolist()] == [hex(value) for value in PUBLISHED]


@pytest.mark.parametrize(("expected", "values"), RANGES)
def test_a_key_is_in_the_range_that_others_assign_it_to(expected, values):
    """Seed, "Sharding: KeyBegin and KeyEnd": a key is handled by one pipeline."""
    assert flow_hash.key_hash([flow_tuple.pack(values)]).tolist() == [expected]


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_many_keys_together_are_as_each_alone(keys):
    alone = [flow_hash.key_hash([key]).tolist()[0] for key in keys]
    assert flow_hash.key_hash(keys).tolist() == alone


def test_slices_may_overlap_and_be_empty():
    arena = bytes(100)
    begins, ends = np.array([0, 10, 100, 3]), np.array([100, 60, 100, 3])
    hashes = flow_hash.hash_slices(arena, begins, ends).tolist()
    sizes = (ends - begins).tolist()
    assert hashes == flow_hash.key_hash([bytes(size) for size in sizes]).tolist()
