"""Ports for the servers of tests: each process of tests has its own, however many of them run side by side.

    free_port()         one
    free_ports(3)       several
    free_base_port()    for `fluffle cluster`: those behind it are free as well, and those 10,000 and 20,000 above

A port that the system chooses may be given away again, to an outgoing connection or to another test, before the server
that it was asked for listens. These are below the ports of outgoing connections (Linux: from 32768 on) and none of a
well-known service. They come in blocks; a process holds one as long as it lives, by holding the first port of it.
"""

import contextlib
import functools
import itertools
import socket
from collections.abc import Iterator
from typing import Final

HOST: Final = "127.0.0.1"
BLOCK: Final = 200
BLOCKS: Final = (*range(10_000, 15_600, BLOCK), *range(20_000, 25_600, BLOCK))
"""The first ports of the blocks: neither 15672 nor 25672 is in any."""
BASE_PORTS: Final = 6_000
BASES: Final = 6
"""A process may start so many clusters one after the other before a port comes round again."""
BASE_STEP: Final = 10
"""More than the nodes of a cluster that a test starts."""
ABOVE: Final = (0, 10_000, 20_000)
"""A node of `fluffle cluster` listens this far from its port: clients, management, the other nodes."""


class NoPortIsFree(Exception):
    """All blocks are held, or something else listens on all ports of this process."""


class Block:
    """The ports of one process.   number: which of the blocks it is."""

    def __init__(self, number: int, guard: socket.socket) -> None:
        self._guard = guard
        first, base = BLOCKS[number], BASE_PORTS + number * BASES * BASE_STEP
        self._ports = itertools.cycle(range(first + 1, first + BLOCK))
        self._bases = itertools.cycle(range(base, base + BASES * BASE_STEP, BASE_STEP))

    def next_port(self) -> int:
        """Return the next free port. Raises: NoPortIsFree."""
        return _first(itertools.islice(self._ports, BLOCK), (0,), 1)

    def next_base_port(self) -> int:
        """Return the next free base port for a cluster. Raises: NoPortIsFree."""
        return _first(itertools.islice(self._bases, BASES), ABOVE, BASE_STEP)

    def close(self) -> None:
        """Release the block for another process."""
        self._guard.close()


def hold_a_block() -> Block:
    """Take the first block that no process has. Raises: NoPortIsFree."""
    for number, first in enumerate(BLOCKS):
        guard = socket.socket()
        try:
            guard.bind((HOST, first))
        except OSError:
            guard.close()
        else:
            return Block(number, guard)
    raise NoPortIsFree("other processes have all blocks")


@functools.cache
def _own() -> Block:
    return hold_a_block()


def free_port() -> int:
    """Return a port on which no process listens, and which no other process of tests gets."""
    return _own().next_port()


def free_ports(count: int) -> list[int]:
    """Return several free ports."""
    return [free_port() for _ in range(count)]


def free_base_port() -> int:
    """Return a free `--base-port` for `fluffle cluster`."""
    return _own().next_base_port()


def _first(candidates: Iterator[int], above: tuple[int, ...], count: int) -> int:
    for port in candidates:
        if all(_is_free(port + more + place) for more in above for place in range(count)):
            return port
    raise NoPortIsFree("something else listens on all ports of this process")


def _is_free(port: int) -> bool:
    """Return whether no process listens on a port, on any address. Ended connections do not count."""
    wanted = [(socket.AF_INET, "")] + [(socket.AF_INET6, "::")] * socket.has_ipv6
    with contextlib.ExitStack() as stack:
        for family, host in wanted:
            try:
                probe = stack.enter_context(socket.socket(family))
            except OSError:  # the system knows of IPv6 and has none
                continue
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True
