"""The parts of gRPC that calls need: channels, streams of bytes, and the meaning of errors.

Only here is grpc imported. Messages are bytes to gRPC: each is decoded once, where it is used.

Options: ring §1c, §4.
"""

import asyncio
import logging
import os
import re
from collections.abc import Coroutine
from typing import Any, Final

from cluster.transport.handshake import Kind
from cluster.transport.interface import CALL_BYTES_MAX, LinkOptions
from cluster.transport.security import Security
from cluster.transport.stream import StreamEnded

# gRPC reads these when it is imported. Its handlers for forks crash children; its own log knows no format and no file.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

GRPC_LOGGER: Final = "grpc._cython.cygrpc"
"""Under this name gRPC's servers log, with a traceback, that the peer of a call went away before its answer."""

SERVICE: Final = "fluffle.peer.Peer"

MESSAGE_BYTES_MAX: Final = CALL_BYTES_MAX + 64 * 1024
"""The biggest message of a call: a request or an answer, and what belongs to it."""

STREAMS_PER_CONNECTION: Final = 128
"""The most calls at once on a connection."""

_SILENCE: Final = ("ping timeout", "keepalive", "timed out", "no route", "unreachable")
"""Words in the text of an error by which a host that cannot be heard differs from a process that has ended."""


_WHERE: Final = re.compile(r"^(?:[A-Z]+: )?(?:ipv[46]:[^ ]+: )?(?:Failed to connect to remote host: )?")
"""The text that gRPC puts before the reason; the address is in our line already."""


_REASON_CHARACTERS_MAX: Final = 300


def _as_debugging(entry: logging.LogRecord) -> bool:
    """Log a peer that went away at level debug: links report it in a line of their own, and no node is at fault.

    gRPC offers no other way: https://github.com/grpc/grpc/pull/32551.
    """
    error = entry.exc_info and entry.exc_info[1]
    if isinstance(error, grpc.aio.InternalError):
        entry.levelno, entry.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return True


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _common_options(options: LinkOptions) -> list[tuple[str, int | str]]:
    return [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.keepalive_time_ms", _milliseconds(options.keepalive_s)),
        ("grpc.keepalive_timeout_ms", _milliseconds(options.ping_timeout_s)),
        # keepalive_timeout alone doesn't fire: ring §4.
        ("grpc.http2.ping_timeout_ms", _milliseconds(options.ping_timeout_s)),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def open_channel(address: str, name: str, security: Security, options: LinkOptions) -> Any:
    """Open a channel, which shares its connection with no other; it connects when it is used.

    name: the node whose certificate is expected; empty: a certificate for the host in the address.
    """
    arguments: list[tuple[str, int | str]] = [
        *_common_options(options),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", _milliseconds(options.reconnect_min_s)),
        ("grpc.min_reconnect_backoff_ms", _milliseconds(options.connect_s)),
        ("grpc.max_reconnect_backoff_ms", _milliseconds(options.reconnect_max_s)),
        # A container that was started again may have another address.
        ("grpc.dns_min_time_between_resolutions_ms", 1000),
    ]
    if not security.has_certificates:
        return grpc.aio.insecure_channel(address, options=arguments)
    if name:
        arguments.append(("grpc.ssl_target_name_override", name))
    credentials = grpc.ssl_channel_credentials(security.ca, security.key, security.certificate)
    return grpc.aio.secure_channel(address, credentials, options=arguments)


def make_server(handlers: dict[str, Any], options: LinkOptions) -> Any:
    """Make a server.   handlers: coroutine functions by kind of stream."""
    server = grpc.aio.server(
        options=[
            *_common_options(options),
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
            ("grpc.server_handshake_timeout_ms", _milliseconds(options.handshake_s)),
            ("grpc.http2.min_ping_interval_without_data_ms", 200),
            ("grpc.http2.max_ping_strikes", 0),
        ]
    )
    logging.getLogger(GRPC_LOGGER).addFilter(_as_debugging)
    methods = {kind: grpc.stream_stream_rpc_method_handler(handler) for kind, handler in handlers.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    return server


def bind(server: Any, security: Security) -> int:
    """Make a server listen on the loopback, where `port` passes connections to it.   Returns: the port.

    Raises: OSError.
    """
    try:
        if not security.has_certificates:
            return int(server.add_insecure_port("127.0.0.1:0"))
        credentials = grpc.ssl_server_credentials(
            [(security.key, security.certificate)], security.ca, require_client_auth=True
        )
        return int(server.add_secure_port("127.0.0.1:0", credentials))
    except RuntimeError as error:
        raise OSError("gRPC cannot listen on 127.0.0.1") from error


class OutgoingStream:
    """A stream that this node opens on a channel."""

    def __init__(self, channel: Any, kind: Kind, name: str) -> None:
        self._call = channel.stream_stream(f"/{SERVICE}/{kind}")()
        self._name = name

    async def read(self) -> bytes:
        """Return the next message. Raises: StreamEnded."""
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise self._ended(error) from error
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise StreamEnded("the link was given up") from None
        if message is grpc.aio.EOF:
            raise StreamEnded("it ended the stream")
        assert isinstance(message, bytes)
        return message

    async def write(self, message: bytes) -> None:
        """Send a message, when there is room for it. Raises: StreamEnded."""
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            raise self._ended(error) from error
        except asyncio.InvalidStateError as error:
            raise StreamEnded("it ended the stream") from error
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise StreamEnded("the link was given up") from None

    def end(self) -> None:
        """End the stream in both directions."""
        self._call.cancel()

    def _ended(self, error: Any) -> StreamEnded:
        details = str(error.details())
        text = _WHERE.sub("", details.rpartition("last error: ")[2])
        if "Hostname Verification" in details:
            text = (
                f"its certificate is not for '{self._name}'"
                if self._name
                else "its certificate is for another host"
            )
        elif error.code() is grpc.StatusCode.UNIMPLEMENTED:
            text = "it is no node of a cluster"
        is_silence = any(word in details.lower() for word in _SILENCE)
        # The other side may have written it.
        text = text[:_REASON_CHARACTERS_MAX]
        return StreamEnded(text or error.code().name, is_silence=is_silence)


def _is_cancelled() -> bool:
    """True if this task was cancelled: gRPC raises CancelledError for a channel that was closed, too."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class IncomingStream:
    """A stream that another node has opened. gRPC cancels the task of its handler when that node ends it."""

    def __init__(self, context: Any) -> None:
        self._context = context

    @property
    def source(self) -> str:
        """The address that the stream comes from, for the log."""
        address = str(self._context.peer()).partition(":")[2]
        return address.replace("%5B", "[").replace("%5D", "]")

    @property
    def certificate(self) -> dict[str, list[bytes]]:
        """The properties that TLS has proved."""
        return dict(self._context.auth_context())

    async def read(self) -> bytes:
        """Return the next message. Raises: StreamEnded."""
        try:
            message = await self._context.read()
        except grpc.aio.BaseError as error:
            raise StreamEnded("the stream broke") from error
        if message is grpc.aio.EOF:
            raise StreamEnded("it ended the stream")
        assert isinstance(message, bytes)
        return message

    async def write(self, message: bytes) -> None:
        """Send a message. Raises: StreamEnded."""
        try:
            await self._context.write(message)
        except grpc.aio.BaseError as error:
            raise StreamEnded("the stream broke") from error


async def first_of(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until one of them ends, with its result or error; the others are cancelled."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A task holds its exception, that its traceback, that this frame: a circle, which would keep connections open.
        del task, tasks
