"""JSON and gzip in pieces."""

import asyncio
import copy
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from node.management import encoding


async def _all(pieces: AsyncIterator[bytes]) -> list[bytes]:
    return [piece async for piece in pieces]


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"a": 1},
        [{"n": n} for n in range(encoding.ROWS)],
        [{"n": n} for n in range(encoding.ROWS * 2 + 1)],
        {"items": [{"n": n} for n in range(1000)], "page": 1, "none": None},
        {"a": {"b": list(range(1000))}, "c": list(range(1000))},
    ],
)
def test_the_pieces_are_the_value(value: Any) -> None:
    expected = copy.copy(value)
    pieces = asyncio.run(_all(encoding.as_json(value)))
    assert json.loads(b"".join(pieces)) == expected
    assert max(map(len, pieces)) < 20_000


def test_a_long_list_is_used_up() -> None:
    """Not all of it is freed in one step; what is short may be somebody's constant."""
    long, short = [{"n": n} for n in range(encoding.ROWS + 1)], [1]
    asyncio.run(_all(encoding.as_json(long)))
    asyncio.run(_all(encoding.as_json(short)))
    assert (long, short) == ([], [1])


def test_packed_pieces_are_the_value() -> None:
    value = [{"name": f"queue {n}"} for n in range(5000)]
    packed = b"".join(asyncio.run(_all(encoding.gzipped(encoding.as_json(value.copy())))))
    assert json.loads(gzip.decompress(packed)) == value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        (2**64, float(2**64)),
        (-(2**63), -(2**63)),
        (10**400, str(10**400)),
        ("a\ud800b", "a?b"),
        (frozenset({"b", "a"}), ["a", "b"]),
        (float("nan"), None),
        (("a", 1), ["a", 1]),
    ],
)
def test_what_json_has_no_word_for(value: Any, shown: Any) -> None:
    assert json.loads(encoding.dumps({"x": value})) == {"x": shown}


def test_what_is_nested_too_deep_is_cut() -> None:
    value: Any = 1
    for _ in range(1000):
        value = [value]
    assert b"\xe2\x80\xa6" in encoding.dumps(value)
