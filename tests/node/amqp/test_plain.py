"""Values of field tables as JSON has them."""

from node.amqp.field_table import VOID, Field, array, boolean, long, longstr, table, timestamp
from node.amqp.plain import plain_table


def test_a_table() -> None:
    found = plain_table(
        {
            "text": longstr("é"),
            "octets": Field("x", b"\xff"),
            "number": long(-1),
            "yes": boolean(True),
            "at": timestamp(5),
            "decimal": Field("D", (2, 314)),
            "nothing": VOID,
            "inner": table({"list": array([long(1), longstr("b")])}),
        }
    )
    assert found == {
        "text": "é",
        "octets": "\ufffd",
        "number": -1,
        "yes": True,
        "at": 5,
        "decimal": 3.14,
        "nothing": None,
        "inner": {"list": [1, "b"]},
    }
