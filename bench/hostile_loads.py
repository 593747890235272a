"""Hostile loads: clients that cause as much work, or use as much memory, as they can with few bytes.

Each load prepares its objects, sets `Flood.begun`, and floods until `Flood.ended` is set. It reads as little of the
broker's answers as it can.
"""

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import count, cycle, repeat
from typing import Final, NamedTuple

from bench import frames as f
from bench.client import BenchError, Connection
from bench.cluster_servers import Cluster
from bench.management import HEADERS as API_HEADERS
from bench.servers import Broker, Server

FLOODERS: Final = 5
HEADERS: Final = 8000
"""The number of headers of one message: as many as fit into a frame of 128 KiB."""
WIDE: Final = 1500
"""The number of queues that a message is routed to."""
BINDINGS: Final = 50_000
PATTERNS: Final = 100
PATTERN_WORDS: Final = 16
"""The number of pairs of `#` and `*` in a pattern: Fluffle accepts no more `#`."""
KEY_WORDS: Final = 19
"""The number of words of a routing key: just few enough that Fluffle does not refuse the message for its cost."""
PUBLISHES: Final = 20
"""The number of publishes in one write, each with its own routing key."""
NAME_LETTERS: Final = 240
"""The length of the queue name that regular expressions are matched with."""
BACKTRACKING: Final = ("^(a+)+$", "^(a|aa)+$", "^([a-z]+)*$", "(x+x+)+y|^(a|a)*$")
READERS: Final = 100
STAY_S: Final = 2.0
"""The time after which a client that does not read disconnects and connects again."""
RECEIVE_BYTES: Final = 4096
"""The receive buffer of a client that does not read."""
HALF_OPEN: Final = 110
"""The number of streams that are in their handshake at once, at each node."""
HALF_OPEN_HOSTS: Final = tuple(f"127.0.0.{number}" for number in range(2, 10))
"""The source addresses of these streams. On Linux all of 127.0.0.0/8 is loopback; the nodes are at 127.0.0.1."""
HALF_OPEN_PAUSE_S: Final = 0.01
STRANGERS: Final = 1200
"""The number of connections that each flooder keeps open."""
VHOST: Final = "bench.vhost"
VHOST_QUEUES: Final = 10_000
AT_ONCE: Final = 100
"""The number of clients that prepare a cluster; several, since each client's changes wait for each other."""
DONE_S: Final = 200.0
OFFENDER: Final = "bench.offender"
NO_WAIT: Final = 16
"""The no-wait bit of queue.declare."""
RESET: Final = struct.pack("ii", 1, 0)
"""The SO_LINGER value with which closing a socket resets the connection, so that its port is free again."""


class Flood(NamedTuple):
    """The control of a load.   begun: set by the load when its preparation is done and it begins to flood.

    ended: set to stop the load, or by a load that has finished.   divisor: of the counts.
    """

    begun: threading.Event
    ended: threading.Event
    divisor: int = 1


Load = Callable[[Server, Flood], None]


# --- messages ---


def many_headers(server: Server, flood: Flood) -> None:
    """Publish messages with thousands of headers to a headers exchange whose binding tests the last header."""
    message = f.Message("amq.headers", "", b"m", headers_of_a_message())
    with Connection(server.ports[0]) as owner:
        owner.declare_queue("bench.headers")
        asked = f.string_table({f"k{HEADERS - 1}": "w"})
        owner.bind_queue("bench.headers", "amq.headers", arguments=asked)
        _send_all(server, flood, lambda _: repeat(message.publish()))


def headers_of_a_message() -> f.Properties:
    """Return headers named k0, k1 and so on."""
    return f.header_properties({f"k{number}": "v" for number in range(HEADERS)})


def wide_fanout(server: Server, flood: Flood) -> None:
    """Publish empty messages to very many queues of one client."""
    names = [f"bench.wide{number:04}" for number in range(WIDE // flood.divisor)]
    with Connection(server.ports[0]) as owner:
        for name in names:
            owner.declare_queue(name)
            owner.bind_queue(name, "amq.fanout")
        _send_all(server, flood, lambda _: repeat(f.Message("amq.fanout", "", b"").publish() * 5))
        for name in names:
            owner.delete_queue(name)


def topic_patterns(server: Server, flood: Flood) -> None:
    """Publish with keys that never repeat, twenty at a time, to bindings with very many wildcards."""
    with Connection(server.ports[0]) as owner:
        owner.declare_queue("bench.patterns")
        for number in range(PATTERNS):
            owner.bind_queue("bench.patterns", "amq.topic", wild_pattern(number))
        _send_all(server, flood, topic_publishes)


def wild_pattern(number: int) -> str:
    """Return a pattern that shares only its first words with other patterns in a trie."""
    pairs = ("#.*" if number >> place & 1 else "*.#" for place in range(PATTERN_WORDS))
    return ".".join(pairs)


def wild_key(flooder: int, number: int) -> str:
    """Return a routing key that was not used before."""
    return "a." * (KEY_WORDS - 2) + f"{flooder}.{number}"


def topic_publishes(flooder: int) -> Iterator[bytes]:
    """Yield the bytes of each write."""
    for first in count(step=PUBLISHES):
        keys = (wild_key(flooder, first + number) for number in range(PUBLISHES))
        yield b"".join(f.Message("amq.topic", key, b"").publish() for key in keys)


# --- names ---


def backtracking(server: Server, flood: Flood) -> None:
    """Declare queues under policies, and be refused by permissions, whose regular expressions backtrack endlessly."""
    for number, pattern in enumerate(BACKTRACKING):
        words = ("--apply-to", "queues", f"p{number}", pattern, '{"max-length": 10}')
        server.ctl("set_policy", *words)
    server.ctl("add_user", OFFENDER, OFFENDER)
    server.ctl("set_permissions", OFFENDER, BACKTRACKING[0], ".*", ".*")
    flood.begun.set()
    with ThreadPoolExecutor(FLOODERS) as pool:
        work = [_declare_and_delete, _be_refused]
        done = [pool.submit(work[number % 2], server, flood, number) for number in range(FLOODERS)]
        for each in done:
            each.result()


def queue_of_letters(number: int) -> str:
    """Return a name that fails to match only after very long backtracking."""
    return "a" * NAME_LETTERS + f"!{number}"


def _declare_and_delete(server: Server, flood: Flood, number: int) -> None:
    name = queue_of_letters(number)
    with Connection(server.ports[0]) as connection:
        while not flood.ended.is_set():
            connection.declare_queue(name)
            connection.delete_queue(name)


def _be_refused(server: Server, flood: Flood, number: int) -> None:
    name = queue_of_letters(number)
    with Connection(server.ports[0], user=OFFENDER) as connection:
        while not flood.ended.is_set():
            with suppress(BenchError):
                connection.declare_queue(name)
                raise ValueError("a queue was declared that permissions forbid")
            connection.reopen()


# --- deletions ---


def mass_deletion(server: Server, flood: Flood) -> None:
    """Delete a queue with very many bindings, repeatedly."""
    name = "bench.bound"
    with Connection(server.ports[0]) as owner:
        while not flood.ended.is_set():
            _bind_often(owner, name, BINDINGS // flood.divisor)
            flood.begun.set()
            owner.delete_queue(name)


def one_deletion(cluster: Broker, flood: Flood) -> None:
    """Delete a queue with very many bindings once."""
    name = "bench.bound"
    with Connection(cluster.ports[0]) as owner:
        owner.declare_queue(name)
        _do_at_once(cluster, name, list(binds(name, BINDINGS // flood.divisor)))
        flood.begun.set()
        owner.delete_queue(name)
    flood.ended.set()


def vhost_deletion(cluster: Cluster, flood: Flood) -> None:
    """Delete a vhost with very many queues."""
    ctl = cluster.nodes[0].ctl
    ctl("add_vhost", VHOST)
    ctl("set_permissions", "-p", VHOST, "guest", ".*", ".*", ".*")
    with Connection(cluster.ports[0], vhost=VHOST) as owner:
        owner.declare_queue("bench.first")
    names = (f"bench.{number}" for number in range(VHOST_QUEUES // flood.divisor))
    _do_at_once(cluster, "bench.first", list(map(declare_without_answer, names)), vhost=VHOST)
    flood.begun.set()
    ctl("delete_vhost", VHOST)
    flood.ended.set()


def _do_at_once(cluster: Broker, queue: str, methods: Sequence[bytes], *, vhost: str = "/") -> None:
    """Send no-wait methods from many clients, and wait until all are processed.   queue: an existing queue."""

    def do(first: int) -> None:
        with Connection(cluster.ports[0], vhost=vhost) as connection:
            connection.socket.settimeout(DONE_S)
            connection.socket.sendall(b"".join(methods[first::AT_ONCE]))
            connection.declare_queue(queue, passive=True)
            connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for each in [pool.submit(do, first) for first in range(AT_ONCE)]:
            each.result()


def declare_without_answer(queue: str) -> bytes:
    """Return the frame of a queue.declare with no-wait."""
    return f.method(
        1, f.QUEUE_DECLARE, b"\0\0" + f.short_string(queue) + bytes([NO_WAIT]) + f.string_table({})
    )


def _bind_often(owner: Connection, queue: str, times: int) -> None:
    owner.declare_queue(queue)
    owner.socket.sendall(b"".join(binds(queue, times)))
    owner.declare_queue(queue, passive=True)


def binds(queue: str, times: int) -> Iterator[bytes]:
    """Yield frames of queue.bind with no-wait, each with another key."""
    for number in range(times):
        names = f.short_string(queue) + f.short_string("amq.direct") + f.short_string(str(number))
        yield f.method(1, f.QUEUE_BIND, b"\0\0" + names + b"\1" + f.string_table({}))


# --- clients without credentials ---


def unread_metrics(server: Server, flood: Flood) -> None:
    """Request the metrics of very many queues without credentials, and do not read the answers."""
    ask_and_not_read(server.metrics_port, "/metrics/per-object", flood)


def unread_lists(server: Server, flood: Flood) -> None:
    """Request the list of very many queues as a user, and do not read the answers."""
    ask_and_not_read(server.http_port, "/api/queues", flood)


def ask_and_not_read(port: int, path: str, flood: Flood) -> None:
    """Keep a hundred requests unread; the oldest connection is replaced by a new one again and again."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in API_HEADERS.items())
    request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n".encode()
    flood.begun.set()
    with ExitStack() as stack:
        places = [stack.enter_context(ExitStack()) for _ in range(READERS)]
        for place in places:
            place.enter_context(_asker(port, request))
        for place in cycle(places):
            if flood.ended.wait(STAY_S / READERS):
                break
            place.close()
            place.enter_context(_asker(port, request))


def _asker(port: int, request: bytes) -> socket.socket:
    asker = socket.socket()
    asker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    asker.settimeout(10.0)
    with suppress(OSError):  # the listen backlog is full: skip this client
        asker.connect(("127.0.0.1", port))
        asker.sendall(request)
    return asker


def strangers(server: Server, flood: Flood) -> None:
    """Open connections without a password, which stop at various points of the handshake."""
    with ThreadPoolExecutor(FLOODERS) as pool:
        flood.begun.set()
        done = [pool.submit(_knock, server.ports[0], flood) for _ in range(FLOODERS)]
        for each in done:
            each.result()


def _knock(port: int, flood: Flood) -> None:
    login = (
        f.string_table({})
        + f.short_string("PLAIN")
        + f.long_string(b"\0guest\0wrong")
        + f.short_string("en_US")
    )
    header = b"AMQP\0\0\x09\x01"
    words = cycle([b"", header, header + f.method(0, f.START_OK, login), b"GET / HTTP/1.1\r\n\r\n"])
    kept: list[socket.socket] = []
    try:
        for at in count():
            if flood.ended.is_set():
                return
            stranger = socket.socket()
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            stranger.settimeout(0.2)
            with suppress(OSError):  # the listen backlog is full: skip this connection
                stranger.connect(("127.0.0.1", port))
                stranger.sendall(next(words))
            if len(kept) < STRANGERS:
                kept.append(stranger)
            else:
                kept[at % STRANGERS].close()
                kept[at % STRANGERS] = stranger
    finally:
        for stranger in kept:
            stranger.close()


# --- peers ---


def half_open_handshakes(ports: Sequence[int], ended: threading.Event) -> None:
    """Open streams of peers at the cluster ports of Fluffle's nodes, send nothing, and start again, repeatedly."""
    places: deque[socket.socket] = deque()
    try:
        for number, port in enumerate(cycle(ports)):
            if ended.wait(HALF_OPEN_PAUSE_S / len(ports)):
                return
            places.append(_half_open(HALF_OPEN_HOSTS[number % len(HALF_OPEN_HOSTS)], port))
            if len(places) > HALF_OPEN * len(ports):
                places.popleft().close()
    finally:
        for each in places:
            each.close()


def _half_open(host: str, port: int) -> socket.socket:
    stranger = socket.socket()
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    stranger.settimeout(0.2)
    with suppress(OSError):  # the node is busy: skip this stream
        stranger.bind((host, 0))
        stranger.connect(("127.0.0.1", port))
        stranger.sendall(_STREAM_OPENED)
    return stranger


_STREAM_OPENED: Final = b"\xf1links\x03\x01"
"""The bytes with which a node opens a control stream: magic, version of the wire, kind (docs/internals/links.md)."""


# --- sending ---


def _send_all(server: Server, flood: Flood, data: Callable[[int], Iterator[bytes]]) -> None:
    """Send data from several clients until the flood ends, and read nothing.   data: the data of one client."""
    with _connections(server, FLOODERS) as connections, ThreadPoolExecutor(FLOODERS) as pool:
        flood.begun.set()
        done = [
            pool.submit(_send, each, flood.ended, data(number)) for number, each in enumerate(connections)
        ]
        for each in done:
            each.result()


@contextmanager
def _connections(server: Server, number: int) -> Iterator[Sequence[Connection]]:
    """Yield connections that are reset at the end, which discards data that the broker has not read."""
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.ports[0])) for _ in range(number)]
        for each in connections:
            each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        yield connections


def _send(connection: Connection, ended: threading.Event, data: Iterator[bytes]) -> None:
    connection.socket.settimeout(0.2)
    left = memoryview(b"")
    while not ended.is_set():
        left = left or memoryview(next(data))
        with suppress(TimeoutError):
            left = left[connection.socket.send(left) :]
