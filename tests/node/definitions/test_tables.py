"""AMQP tables as JSON and back (management §2.4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.amqp.field_table import VOID, Field, array, boolean, long, longstr, table, timestamp
from node.amqp.plain import plain_table
from node.catalogue.records import Json
from node.definitions.tables import TableInvalid, table_from_json

_scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
_json = st.recursive(
    _scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner), max_leaves=9
)


def test_types_of_values() -> None:
    found = table_from_json({"i": 5, "f": 1.5, "t": True, "s": "é", "a": [1, {"b": "c"}], "o": {"k": -1}})
    assert found == {
        "i": long(5),
        "f": Field("d", 1.5),
        "t": boolean(True),
        "s": longstr("é"),
        "a": array([long(1), table({"b": longstr("c")})]),
        "o": table({"k": long(-1)}),
    }


def test_an_empty_list_is_an_empty_object() -> None:
    """§2.2: the command line's export has it so."""
    assert table_from_json([]) == {}


def test_what_json_has_no_word_for() -> None:
    found = {"t": timestamp(7), "d": Field("D", (2, 150)), "v": VOID, "x": Field("x", b"\xff")}
    assert plain_table(found) == {"t": 7, "d": 1.5, "v": None, "x": "\ufffd"}


@given(st.dictionaries(st.text(max_size=9), _json))
def test_there_and_back(value: dict[str, Json]) -> None:
    assert plain_table(table_from_json(value)) == value


def test_null() -> None:
    with pytest.raises(TableInvalid, match="null_not_allowed"):
        table_from_json({"a": {"b": [None]}})
    assert table_from_json({"a": None}, allow_null=True) == {"a": VOID}


def _nested(levels: int) -> Json:
    value: Json = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [5, "x", [1], [["a", 1]], {"a": 2**63}, {"a" * 256: 1}, {"a": _nested(40)}])
def test_no_tables(value: Json) -> None:
    with pytest.raises(TableInvalid):
        table_from_json(value)


@pytest.mark.parametrize(
    "value",
    [
        {str(number): None for number in range(1001)},
        {"a": [[]] * 1000},
        {"a": {str(number): {"b": "c"} for number in range(500)}},
    ],
)
def test_a_table_has_so_many_values_and_no_more(value: dict[str, Json]) -> None:
    with pytest.raises(TableInvalid, match="more than 1000 arguments"):
        table_from_json(value)
    table_from_json({"a": [True] * 999})
