"""The write barrier: reliability §3.9 item 2."""

from cluster.metadata.write_barrier import CAPACITY_BYTES, WriteBarrier


def test_a_message_waits_until_it_is_safe_and_none_overtakes() -> None:
    sent: list[tuple[str, bytes]] = []
    barrier = WriteBarrier(lambda peer, message: sent.append((peer, message)))
    barrier.push("a", b"now", 0, 0)
    barrier.push("a", b"first", 2, 1)
    barrier.push("b", b"second", 2, 2)
    assert sent == [("a", b"now")]
    barrier.release(1)
    assert len(sent) == 1
    barrier.release(2)
    assert sent[1:] == [("a", b"first"), ("b", b"second")]


def test_what_waits_is_bounded() -> None:
    sent: list[bytes] = []
    barrier = WriteBarrier(lambda peer, message: sent.append(message))
    half = bytes(CAPACITY_BYTES // 2)
    for _ in range(5):
        barrier.push("a", half, 1, 0)
    barrier.release(1)
    assert len(sent) == 2


def test_a_lost_link_loses_what_waits_for_it() -> None:
    sent: list[str] = []
    barrier = WriteBarrier(lambda peer, message: sent.append(peer))
    barrier.push("a", b"x", 1, 0)
    barrier.push("b", b"x", 1, 0)
    barrier.forget("a")
    barrier.release(1)
    assert sent == ["b"]
