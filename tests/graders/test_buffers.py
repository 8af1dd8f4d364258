"""Arrays in memfds: strides, change detection, and what a lying leaf gets."""

import os

import numpy as np
import pytest

from graders.buffers import BadLeaf, Buffer, layout, read_output, read_outputs, room_for

BASE = np.arange(2 * 3 * 8, dtype=np.float32).reshape(2, 3, 8)
VIEWS = {
    "plain": BASE,
    "every second": BASE[..., ::2],
    "transposed": BASE.transpose(2, 0, 1),
    "reversed": BASE[:, ::-1, ::-1],
    "broadcast": np.broadcast_to(BASE[:, :1], BASE.shape),
    "empty": BASE[:0],
    "scalar": np.float64(3.5).reshape(()),
}


@pytest.fixture
def buffer():
    made = Buffer(1 << 16, "test")
    yield made
    made.close()


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_arrives_with_its_strides(name, buffer):
    arrays = {"first": np.ones(3), name: VIEWS[name]}
    placed = layout(arrays)
    buffer.write(placed, arrays)
    seen = buffer.view(placed.leaves[1])
    assert seen.strides == VIEWS[name].strides and seen.shape == VIEWS[name].shape
    np.testing.assert_array_equal(seen, VIEWS[name])


def test_what_lies_between_strided_elements_is_nan(buffer):
    arrays = {"x": BASE[..., ::2]}
    placed = layout(arrays)
    buffer.write(placed, arrays)
    raw = np.frombuffer(buffer.read(BASE.nbytes, placed.leaves[0]["offset"]), np.float32)
    assert np.isnan(raw[1::2]).all() and np.isfinite(raw[::2]).all()


def test_a_changed_byte_is_seen_even_behind_nan(buffer):
    arrays = {"x": np.full(4, np.nan), "y": np.zeros(4)}
    placed = layout(arrays)
    buffer.write(placed, arrays)
    assert buffer.changed(placed, arrays) == []
    buffer.view(placed.leaves[1])[2] = -0.0  # equal as a number
    assert buffer.changed(placed, arrays) == ["y"]


def test_the_size_is_sealed(buffer):
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(buffer.fd, size)


LIES = [
    {"dtype": "object"},
    {"dtype": "U4"},
    {"dtype": "no such"},
    {"dtype": None},
    {"shape": [-1]},
    {"shape": [1 << 40]},
    {"shape": [1] * 40},
    {"shape": "abc"},
    {"shape": [1 << 62, 1 << 62]},
    {"offset": -8},
    {"offset": 1 << 40},
    {"offset": "0x"},
    {"offset": float("inf")},
    {"offset": True},
    {"offset": 0.0},
    {"shape": [float("inf")]},
    {"shape": [4.0]},
    {"shape": [True]},
    {"shape": [10**30, 0]},
    {"shape": [0, 1 << 80]},
    {"shape": [0, 1 << 61, 1 << 61, 1 << 61]},
    {"shape": [10**4200] * 31},
    {"shape": {"0": 4}},
    {"dtype": "(1,,2)f4,f4"},
    {"dtype": "f4,("},
    {"dtype": ">f4"},
    {"dtype": ["float32"]},
    {"dtype": "complex64"},
]


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_lying_leaf_is_refused(lie, buffer):
    leaf = {"name": "y", "dtype": "float32", "shape": [4], "offset": 0}
    assert read_output(buffer, leaf).shape == (4,)
    with pytest.raises(BadLeaf):
        read_output(buffer, {**leaf, **lie})


def test_outputs_that_overlap_cannot_fill_the_memory_of_the_referee(buffer):
    leaves = [
        {"name": str(n), "dtype": "uint8", "shape": [1 << 15], "offset": 0} for n in range(1000)
    ]
    assert len(read_outputs(buffer, leaves[:2])) == 2
    with pytest.raises(BadLeaf, match="overlap"):
        read_outputs(buffer, leaves)


@pytest.mark.parametrize("leaves", [None, "ab", {}, [1], [{}], [{"name": "y"}] * 2], ids=str)
def test_what_is_no_list_of_leaves_is_refused(leaves, buffer):
    with pytest.raises(BadLeaf):
        read_outputs(buffer, leaves)


def test_the_room_is_bounded_by_the_expected_outputs():
    assert room_for({"y": np.zeros(1000, np.float32)}) < 4000 + (1 << 17)
