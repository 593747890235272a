"""The responses of the SASL mechanisms that the client knows: PLAIN, AMQPLAIN and EXTERNAL."""

from collections.abc import Sequence

from node.amqp.field_table import encode_table, longstr


def choose(offered: bytes, wanted: Sequence[str]) -> str | None:
    """Return the first mechanism of the client's that the broker offers; None if there is none."""
    names = offered.decode("ascii", "replace").split(" ")
    return next((name for name in wanted if name in names), None)


def response(mechanism: str, user: str, password: str) -> bytes:
    """Return the response of a mechanism that `choose` returned."""
    if mechanism == "EXTERNAL":
        return b""
    if mechanism == "AMQPLAIN":
        return encode_table({"LOGIN": longstr(user), "PASSWORD": longstr(password)})[4:]
    assert mechanism == "PLAIN", mechanism
    return b"\0" + b"\0".join(text.encode("utf-8", "surrogateescape") for text in (user, password))
