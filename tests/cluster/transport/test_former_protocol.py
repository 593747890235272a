"""Nodes of protocol 1 are refused in their own language."""

from cluster.transport.former_protocol import REASON, farewell


def test_the_farewell_is_settings_and_goaway() -> None:
    """Each frame has a header of 9 bytes, and GOAWAY has the last stream, an error and a text (RFC 9113)."""
    data = farewell()
    settings, goaway = data[:9], data[9:]
    assert settings == bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    assert int.from_bytes(goaway[:3], "big") == len(goaway) - 9 == 8 + len(REASON)
    assert goaway[3:9] == bytes([7, 0, 0, 0, 0, 0])
    assert goaway[9:17] == bytes([127, 255, 255, 255, 0, 0, 0, 2])
    assert goaway[17:].decode() == REASON
    assert "of protocol 1" in REASON
