"""Long lists in pieces."""

import json
from typing import Any

import pytest

from node.io.json_pieces import ROWS, json_pieces


def dumps(value: Any) -> bytes:
    return json.dumps(value).encode()


LONG = [{"n": n} for n in range(2 * ROWS + 1)]


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ([], 1),
        (LONG[:ROWS], 1),
        (LONG, 4),
        ({"page": 1, "items": LONG[:ROWS]}, 1),
        ({"page": 1, "items": LONG, "last": None}, 10),
        ({"result": {"queues": LONG}}, 8),
        ({"a": {"b": {"c": LONG}}}, 1),
        ([[LONG]], 1),
    ],
)
def test_the_pieces_are_the_value(value: Any, count: int) -> None:
    """A list at the top is cut, and in an object, and in an object there; deeper ones are not."""
    pieces = list(json_pieces(value, dumps))
    assert json.loads(b"".join(pieces)) == value
    assert len(pieces) == count
