"""Stretches of messages with the same properties, and headers that are read once for each stretch."""

import pytest

from node.amqp.field_table import Field, Table, longstr
from node.amqp.properties import Properties
from node.queue.alike import CACHED_MAX_BYTES, headers_in, properties_octets, stretches
from node.queue.content import chosen_headers
from tests.kit.messages import content


def told(*values: int | None) -> list[bytes]:
    """Contents with these delays; None: without properties. Their bodies differ in size, and channels too."""
    return [
        content(b"x" * number, 1 + number % 2, properties=None if value is None else headed(value))
        for number, value in enumerate(values)
    ]


def headed(value: int) -> Properties:
    return Properties(headers={"x-delay": Field("I", value)}, delivery_mode=2)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([], []),
        ([5], [(0, 1)]),
        ([5, 5, 5], [(0, 3)]),
        ([5, 6, 6, 5], [(0, 1), (1, 3), (3, 4)]),
        ([None, None, 5, None], [(0, 2), (2, 3), (3, 4)]),
    ],
)
def test_stretches_end_where_properties_change(
    values: list[int | None], found: list[tuple[int, int]]
) -> None:
    contents = told(*values)
    assert [(first, stop) for _, first, stop in stretches(contents)] == found
    for octets, first, stop in stretches(contents):
        assert {properties_octets(each) for each in contents[first:stop]} == {octets}


def test_stretches_from_an_index_on() -> None:
    assert [(first, stop) for _, first, stop in stretches(told(5, 5, 5, 6), 2)] == [(2, 3), (3, 4)]


@pytest.mark.parametrize(("shorter", "longer"), [(None, 5), (5, 0xCE)])
def test_properties_that_begin_alike_are_not_the_same(shorter: int | None, longer: int) -> None:
    """No properties are the beginning of others: the octet that ends the frame counts."""
    contents = told(shorter, longer, shorter)
    assert len(list(stretches(contents))) == 3


@pytest.mark.parametrize("filler", [b"", b"x" * CACHED_MAX_BYTES])
def test_headers_are_those_of_the_message(filler: bytes) -> None:
    """Short properties are remembered, long ones are read each time."""
    names = (b"x-delay", b"missing")
    table: Table = {"a": longstr(filler), "x-delay": Field("I", 7), "z": longstr("end")}
    raw = content(b"body", properties=Properties(headers=table, content_type="text/plain", message_id="m"))
    for _ in range(2):
        ((octets, _, _),) = stretches([raw])
        assert headers_in(octets, names) == chosen_headers(raw, names) == {"x-delay": Field("I", 7)}
