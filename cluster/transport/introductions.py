"""Run the handshake over a stream, on either side."""

import asyncio
import os
from collections.abc import Callable, Set
from typing import Protocol

from cluster.transport.handshake import NONCE_BYTES, Answerer, HandshakeFailed, Kind, Opener, refusal
from cluster.transport.interface import Hello, Identity
from cluster.transport.stream import StreamEnded

Admit = Callable[[Hello], str | None]
"""Returns why a node is refused; None to let it in."""


class Messages(Protocol):
    """A stream of messages."""

    async def read(self) -> bytes:
        """Return the next message. Raises: StreamEnded, StreamFault."""

    async def write(self, message: bytes) -> None:
        """Send a message. Raises: StreamEnded, StreamFault."""


async def greet(stream: Messages, opener: Opener, admit: Admit, timeout_s: float) -> Hello:
    """Run the opener's side of the handshake. Raises: HandshakeFailed, StreamEnded, StreamFault."""
    try:
        async with asyncio.timeout(timeout_s):
            await stream.write(opener.greet())
            try:
                await stream.write(opener.receive_greeting(await stream.read()))
                hello = opener.receive_proof(await stream.read())
                _check(admit(hello))
            except HandshakeFailed as error:
                if not error.is_theirs:
                    await stream.write(refusal(str(error)))
                raise
            await stream.write(opener.accepted())
    except TimeoutError:
        raise StreamEnded("it doesn't answer", is_silence=True) from None
    return hello


async def answer(stream: Messages, answerer: Answerer, admit: Admit) -> Hello:
    """Run the side that is called; the opener is told why it is refused.

    Raises: HandshakeFailed, which has the name that was proved, StreamEnded, StreamFault.
    """
    name = ""
    try:
        await stream.write(answerer.receive_greeting(await stream.read()))
        hello = answerer.receive_proof(await stream.read())
        name = hello.name
        _check(admit(hello))
        await stream.write(answerer.proof())
        answerer.receive_accepted(await stream.read())
    except HandshakeFailed as error:
        error.name = name
        if not error.is_theirs:
            await stream.write(refusal(str(error)))
        raise
    return hello


def new_opener(
    identity: Identity, kind: Kind, name: str, secret: bytes, names: Set[str] | None = None
) -> Opener:
    """Return the opener of a new stream.   name: the node that must answer; empty: any of the cluster."""
    return Opener(identity, kind, name, secret, os.urandom(NONCE_BYTES), names)


def new_answerer(identity: Identity, kind: Kind, secret: bytes, names: Set[str] | None) -> Answerer:
    """Return the side that is called, for a new stream.   names: those in the caller's certificate."""
    return Answerer(identity, kind, names, secret, os.urandom(NONCE_BYTES))


def _check(why_not: str | None) -> None:
    if why_not is not None:
        raise HandshakeFailed(why_not)
