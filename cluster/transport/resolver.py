"""Addresses of other nodes' names, each looked up in a thread of its own.

uvloop and asyncio look names up in a few threads that all share. A name server that does not answer holds one of them
for many seconds, so that the names of two nodes that are gone would keep all others from being found.
"""

import asyncio
import contextlib
import socket
import threading
from typing import Any, Final
from weakref import WeakKeyDictionary

Found = list[tuple[Any, ...]]
"""What `socket.getaddrinfo` returns."""

_under_way: Final[
    WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], "asyncio.Future[Found]"]]
] = WeakKeyDictionary()
"""The lookups of each loop: at most one for each name, however often it is asked for, and so one thread for each."""


async def addresses(host: str, port: int) -> Found:
    """Return the addresses of a host. The lookup goes on if the caller is cancelled. Raises: OSError."""
    with contextlib.suppress(OSError):  # an address is no name: nobody has to be asked
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    loop = asyncio.get_running_loop()
    lookups = _under_way.setdefault(loop, {})
    future = lookups.get((host, port))
    if future is None:
        future = lookups[host, port] = loop.create_future()
        future.add_done_callback(lambda done: _forget(lookups, (host, port), done))
        # Daemons: a lookup that hangs must not keep the process from ending.
        threading.Thread(
            target=_look_up, args=(loop, future, host, port), name=f"lookup of {host}", daemon=True
        ).start()
    return await asyncio.shield(future)


def _forget(
    lookups: dict[tuple[str, int], "asyncio.Future[Found]"],
    key: tuple[str, int],
    future: "asyncio.Future[Found]",
) -> None:
    del lookups[key]
    if not future.cancelled():
        future.exception()  # nobody may be waiting for it any more


def _look_up(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Found]", host: str, port: int) -> None:
    found: Found = []
    error: OSError | None = None
    try:
        found = list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except UnicodeError:  # a part of the name is too long
        error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    except OSError as raised:
        error = raised

    def tell() -> None:
        if not future.done():
            if error is None:
                future.set_result(found)
            else:
                future.set_exception(error)

    try:
        loop.call_soon_threadsafe(tell)
    except RuntimeError:
        return  # the loop has ended
