"""Sizes are read as operators write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ops.planning.sizes import size_of


@pytest.mark.parametrize(
    ("text", "size"),
    [("7", 7), ("512k", 512e3), ("20MB", 20e6), ("1.5 GiB", 1.5 * 2**30), (" 2tib ", 2**41), ("0", 0)],
)
def test_sizes(text: str, size: float) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1e9", "1.", ".5", "5 X", "5PB", "٣", "1" * 19])
def test_what_is_no_size(text: str) -> None:
    assert size_of(text) is None


@given(st.text())
def test_any_text_is_a_size_or_none(text: str) -> None:
    size = size_of(text)
    assert size is None or 0 <= size < float("inf")
