"""Retaining exchanges keep a stated number of routing keys."""

import pytest

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, longstr
from node.catalogue.retained import DEFAULT_LENGTH, KEPT


@pytest.mark.parametrize("field", [longstr("5"), Field("l", 0), Field("l", -1), Field("t", True)])
def test_a_length_is_a_positive_integer(field: Field) -> None:
    with pytest.raises(ProtocolError):
        KEPT.check({"x-max-length": field})


def test_the_length() -> None:
    KEPT.check({})
    KEPT.check({"x-max-length": Field("I", 5)})
    assert KEPT.of({"x-max-length": Field("I", 5)}) == 5
    assert KEPT.of({}) == DEFAULT_LENGTH
