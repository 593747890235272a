"""The bytes that wait for a plug-in."""

from node.client.backlog import Backlog


def test_bytes_are_kept_in_their_order() -> None:
    backlog = Backlog()
    backlog.keep(b"a")
    backlog.keep(b"bc")
    assert backlog.kept_bytes == 3
    assert backlog.take() == b"abc"
    assert (backlog.kept_bytes, backlog.take()) == (0, b"")
    backlog.keep(b"d")
    backlog.clear()
    assert backlog.take() == b""
