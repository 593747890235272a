"""Values of any size between nodes."""

import asyncio
import base64
import zlib
from typing import Any

import pytest

from node.clustering import packing
from node.io.control import ControlError


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "text",
        "line\nline\u2028ä😀",
        {},
        {"a": [1, {"b": None}]},
        [],
        [None],
        [[], {}],
        [{"name": f"queue {number}", "text": "\n"} for number in range(3000)],
    ],
)
def test_what_was_packed_is_unpacked(value: Any) -> None:
    assert asyncio.run(packing.unpack(asyncio.run(packing.pack(value)))) == value


def test_long_values_have_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PART_CHARACTERS", 100)
    value = [f"{number * 7919 % 1000}" for number in range(1000)]
    parts = asyncio.run(packing.pack(value))
    assert len(parts) > 5
    assert max(map(len, parts)) == 100
    assert asyncio.run(packing.unpack(parts)) == value


def test_what_is_too_long_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PACKED_CHARACTERS_MAX", 10)
    with pytest.raises(ControlError):
        asyncio.run(packing.pack("some text that is longer"))


def packed(data: bytes) -> list[str]:
    return [base64.b64encode(zlib.compress(data)).decode()]


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [""],
        ["!"],
        ["AAAA"],
        packed(b""),
        packed(b"value\n"),
        packed(b"value\n1\n2\n"),
        packed(b"other\n1\n"),
        packed(b"value\nnonsense\n"),
        packed(b"value\n" + b"[" * 100_000 + b"\n"),
        [base64.b64encode(zlib.compress(b"value\n1\n")[:-3]).decode()],
    ],
)
def test_what_is_not_understood_is_refused(parts: list[str]) -> None:
    with pytest.raises(ControlError):
        asyncio.run(packing.unpack(parts))


def test_a_small_packet_that_unpacks_to_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "UNPACKED_BYTES_MAX", 100_000)
    with pytest.raises(ControlError):
        asyncio.run(packing.unpack(packed(b'value\n"' + b" " * 200_000 + b'"\n')))


def test_parts_wait_on_the_shelf_until_the_last_is_taken() -> None:
    shelf = packing.Shelf(lambda: 0.0)
    number = shelf.put(["a", "b"])
    assert [shelf.take(number, 0), shelf.take(number, 1)] == ["a", "b"]
    for part in (0, 1, 2, -1, None, "0"):
        with pytest.raises(ControlError):
            shelf.take(number, part)


def test_the_shelf_is_small_and_nothing_stays_long() -> None:
    now = 0.0
    shelf = packing.Shelf(lambda: now)
    first = shelf.put(["a", "b"])
    last = [shelf.put(["a", "b"]) for _ in range(packing.SHELF_MAX)][-1]
    with pytest.raises(ControlError):
        shelf.take(first, 0)
    assert shelf.take(last, 0) == "a"
    now = packing.SHELF_S + 1
    with pytest.raises(ControlError):
        shelf.take(last, 1)
