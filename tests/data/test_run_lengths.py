"""Run lengths against COCO's own functions, and numbers that those would crash on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from horosphere.data.run_lengths import mask_of_runs, runs_of_text

masks = arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=40))
smooth = st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(-9, 60), st.integers(-9, 60)).map(
    lambda s: np.add.outer(abs(np.arange(s[0]) - s[2]), abs(np.arange(s[1]) - s[3])) < 20
)


@given(masks | smooth)
def test_masks_are_cocos_own(mask):
    oracle = pytest.importorskip("pycocotools.mask")
    packed = oracle.encode(np.asfortranarray(mask.astype(np.uint8)))
    text = packed["counts"].decode()
    runs = runs_of_text(text)
    assert runs.sum() == mask.size
    np.testing.assert_array_equal(mask_of_runs({**packed, "counts": text}, mask.shape), mask)
    np.testing.assert_array_equal(mask_of_runs({"size": mask.shape, "counts": runs.tolist()}, mask.shape), mask)
    again = oracle.frPyObjects({"size": list(mask.shape), "counts": runs.tolist()}, *mask.shape)
    np.testing.assert_array_equal(oracle.decode(again), mask)


@pytest.mark.parametrize(
    "given",
    [
        {"size": [10**6, 10**6], "counts": [10**12]},
        {"size": [3, 2], "counts": [6]},
        {"size": [2, 3], "counts": [5]},
        {"size": [2, 3], "counts": [7]},
        {"size": [2, 3], "counts": [-1, 7]},
        {"size": [2, 3], "counts": [2**62, 2**62, 2**62, 2**62, 6]},
        {"size": [2, 3], "counts": [2**63, 2**63, 6]},
        {"size": [2, 3], "counts": [5.5, 0.5]},
        {"size": [2, 3], "counts": [float("nan"), 6]},
        {"size": [2, 3], "counts": [float("inf")]},
        {"size": [2, 3], "counts": ["6"]},
        {"size": [2, 3], "counts": [[6]]},
        {"size": [2, 3], "counts": [None]},
        {"size": [2, 3], "counts": []},
        {"size": [2, 3], "counts": 6},
        {"size": [2, 3], "counts": None},
        {"size": [2, 3]},
        {"counts": [6]},
        {"size": "23", "counts": [6]},
        {"size": None, "counts": [6]},
        {"size": [2, 3], "counts": ""},
        {"size": [2, 3], "counts": "é"},
        {"size": [2, 3], "counts": "\x00"},
        {"size": [2, 3], "counts": "oooooooooooooooo"},  # a number without an end
        {"size": [2, 3], "counts": "ooooooooooooooo0"},  # of 80 bits
        {"size": [2, 3], "counts": "P"},
    ],
)
def test_runs_that_are_none_of_this_picture(given):
    with pytest.raises((ValueError, LookupError, TypeError)):
        mask_of_runs(given, (2, 3))


@given(st.text() | st.binary().map(lambda b: b.decode("latin-1")))
def test_any_text_is_runs_or_a_value_error(text):
    try:
        assert runs_of_text(text).dtype == np.int64
    except ValueError as error:
        assert str(error)  # noqa: PT017
