"""The oldest handshakes give way while strangers open more and more."""

from functools import partial

from cluster.transport import handshakes
from cluster.transport.handshakes import HANDSHAKES_MAX, OF_HOST_MAX, Handshakes


def begun(known: Handshakes, host: str, name: str, ended: list[str]) -> int:
    return known.begin(host, partial(ended.append, name))


def test_the_oldest_of_a_host_goes_for_one_more_of_it() -> None:
    known, ended = Handshakes(), list[str]()
    numbers = [begun(known, "a", f"a{number}", ended) for number in range(OF_HOST_MAX)]
    other = begun(known, "b", "b", ended)
    assert ended == []
    begun(known, "a", "more", ended)
    assert ended == ["a0"]
    known.leave(numbers[0])  # it has heard of that later
    known.leave(numbers[1])
    begun(known, "a", "yet more", ended)
    assert ended == ["a0"]
    known.leave(other)
    assert len(known) == OF_HOST_MAX


def test_of_all_hosts_the_oldest_stranger_goes_and_members_stay() -> None:
    known, ended = Handshakes(), list[str]()
    known.has_proved("member")
    begun(known, "member", "member", ended)
    for number in range(HANDSHAKES_MAX * 3):
        begun(known, f"stranger {number}", str(number), ended)
    assert len(known) == HANDSHAKES_MAX
    assert ended[:2] == ["0", "1"]
    assert "member" not in ended
    begun(known, "member", "again", ended)
    assert "member" not in ended


def test_where_there_are_members_only_the_oldest_goes() -> None:
    known, ended = Handshakes(), list[str]()
    for number in range(HANDSHAKES_MAX + 1):
        known.has_proved(f"member {number}")
        begun(known, f"member {number}", str(number), ended)
    assert ended == ["0"]


def test_so_many_members_are_remembered() -> None:
    known = Handshakes()
    for number in range(handshakes.KNOWN_MAX + 10):
        known.has_proved(str(number))
    assert len(known._known) == handshakes.KNOWN_MAX
    assert "9" not in known._known
    assert len(known) == 0
