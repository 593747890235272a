"""Hostile loads ask for as much as the node takes, and not more."""

import socket
import threading
from contextlib import closing
from itertools import islice

import pytest

from bench import frames as f
from bench import hostile_loads as loads
from bench.hostile_loads import Flood
from node.amqp.method_codec import decode_method
from node.amqp.methods import QueueBind, QueueDeclare
from node.catalogue.limits import ANY_WORDS_MAX
from node.catalogue.linear_pattern import matcher
from node.catalogue.records import Binding
from node.routing.exchanges import STATES_MAX
from node.routing.exchanges.topic import TopicIndex


def test_patterns_and_keys_are_just_below_what_is_refused() -> None:
    """A message that is refused costs its connection a channel, and the node no more work."""
    index = TopicIndex()
    patterns = {loads.wild_pattern(number) for number in range(loads.PATTERNS)}
    assert len(patterns) == loads.PATTERNS
    for pattern in patterns:
        assert pattern.count("#") == ANY_WORDS_MAX
        index.bind(Binding("/", "amq.topic", "queue", "q", pattern, {}))
    assert list(index.match(loads.wild_key(loads.FLOODERS, 10**9)))
    assert 0.9 * STATES_MAX < index.states <= STATES_MAX


def test_keys_do_not_repeat() -> None:
    """Keys do not repeat, or a connection would remember the way."""
    keys = [loads.wild_key(flooder, number) for flooder in range(3) for number in range(100)]
    assert len(set(keys)) == len(keys)
    writes = list(islice(loads.topic_publishes(0), 3))
    assert len(set(writes)) == 3
    assert all(write.count(b"amq.topic") == loads.PUBLISHES for write in writes)


@pytest.mark.parametrize("pattern", loads.BACKTRACKING)
def test_expressions_are_taken_and_do_not_match(pattern: str) -> None:
    """Expressions are taken and do not match, or they would not be tried at all, or found at once."""
    name = loads.queue_of_letters(3)
    assert len(name) <= 255
    assert not matcher(pattern.encode())(name.encode())


def test_headers_fit_a_frame() -> None:
    message = f.Message("amq.headers", "", b"m", loads.headers_of_a_message())
    assert 0.7 * f.FRAME_BYTES_MAX < len(message.publish()) < f.FRAME_BYTES_MAX


def test_methods_without_answers() -> None:
    """As the node reads them."""
    declared = decode_method(loads.declare_without_answer("q")[7:-1])
    assert isinstance(declared, QueueDeclare)
    assert (declared.queue, declared.nowait, declared.passive) == ("q", True, False)
    bound = [decode_method(each[7:-1]) for each in loads.binds("q", 2)]
    assert all(isinstance(each, QueueBind) and each.nowait for each in bound)
    assert bound[0] != bound[1]


@pytest.mark.real
def test_who_asks_and_does_not_read_leaves_at_the_end() -> None:
    """All of them, when the flood is over."""
    flood = Flood(threading.Event(), threading.Event())
    with closing(socket.create_server(("127.0.0.1", 0), backlog=loads.READERS)) as server:
        port = server.getsockname()[1]
        asking = threading.Thread(target=loads.ask_and_not_read, args=(port, "/path", flood), daemon=True)
        asking.start()
        server.settimeout(10.0)
        came = [server.accept()[0] for _ in range(loads.READERS)]
        assert flood.begun.is_set()
        flood.ended.set()
        asking.join(10.0)
        assert not asking.is_alive()
        for each in came:
            with closing(each):
                assert each.recv(9) == b"GET /path"
