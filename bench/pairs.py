"""Two brokers of one make, for workloads in which one takes messages from the other."""

import time

from bench.client import BenchError, Connection
from bench.flow import STALL_S
from bench.servers import Fluffle, Server

POLL_S = 0.01


def another(server: Server) -> Server:
    """Return a server of the same make and version, not started."""
    return type(server)(checkout=server.checkout) if isinstance(server, Fluffle) else type(server)()


def uri(server: Server) -> str:
    """Return the URI by which another broker on this machine connects."""
    return f"amqp://guest:guest@127.0.0.1:{server.port}"


def wait_for_length(connection: Connection, queue: str, count: int, *, stall_s: float = STALL_S) -> float:
    """Wait until a durable queue has so many messages, and return the time.

    Raises: BenchError if no more come for `stall_s`.
    """
    seen, seen_at = -1, time.perf_counter()
    while True:
        length = connection.declare_queue(queue, durable=True, passive=True)
        now = time.perf_counter()
        if length >= count:
            return now
        if length != seen:
            seen, seen_at = length, now
        elif now > seen_at + stall_s:
            raise BenchError(f"{count} messages were expected, and {length} came")
        time.sleep(POLL_S)
