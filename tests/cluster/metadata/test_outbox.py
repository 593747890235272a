"""The write barrier: reliability §3.9 item 2."""

from cluster.metadata.outbox import CAPACITY_BYTES, Outbox


def test_a_message_waits_until_it_is_safe_and_none_overtakes() -> None:
    sent: list[tuple[str, bytes]] = []
    outbox = Outbox(lambda peer, message: sent.append((peer, message)))
    outbox.push("a", b"now", 0, 0)
    outbox.push("a", b"first", 2, 1)
    outbox.push("b", b"second", 2, 2)
    assert sent == [("a", b"now")]
    outbox.release(1)
    assert len(sent) == 1
    outbox.release(2)
    assert sent[1:] == [("a", b"first"), ("b", b"second")]


def test_what_waits_is_bounded() -> None:
    sent: list[bytes] = []
    outbox = Outbox(lambda peer, message: sent.append(message))
    half = bytes(CAPACITY_BYTES // 2)
    for _ in range(5):
        outbox.push("a", half, 1, 0)
    outbox.release(1)
    assert len(sent) == 2


def test_a_lost_link_loses_what_waits_for_it() -> None:
    sent: list[str] = []
    outbox = Outbox(lambda peer, message: sent.append(peer))
    outbox.push("a", b"x", 1, 0)
    outbox.push("b", b"x", 1, 0)
    outbox.forget("a")
    outbox.release(1)
    assert sent == ["b"]
