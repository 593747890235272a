"""The listener for HTTP: sockets, time-outs, and octets that become requests. aiohttp does the protocol.

The resources that a peer may use up are bounded: connections, the time until the first request, idle time, the size
of a body and how long it may take, and how long an answer waits for a slow reader.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from node.config.config import TlsOptions
from node.config.values import Address
from node.io.tls import server_context
from node.io.tls_handshake import TlsHandshake
from node.management import auth, encoding
from node.management.access_log import AccessLog
from node.management.dispatcher import PRODUCT, Dispatcher, Incoming
from node.management.reply import ApiError, Reply, bad_request

CONNECTIONS_MAX: Final = 1000
TLS_HANDSHAKE_S: Final = 20.0
FIRST_REQUEST_S: Final = 20.0
BODY_S: Final = 60.0
WRITE_S: Final = 60.0
CLOSE_S: Final = 2.0
"""For how many seconds requests under way may continue when the node stops."""
HEADER_BYTES_MAX: Final = 16 * 1024
"""The largest header, and first line: names of 255 octets are three times as long in a path, and there may be four."""
BACKLOG: Final = 128


class HttpServer:
    """One dispatcher's listener. `await start(...)`, then `await close()`.

    body_max_bytes: of a request.   compress: whether answers are compressed for clients that accept that.
    access_log: where requests are noted; None: nowhere.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        logger: "logging.Logger | logging.LoggerAdapter[logging.Logger]",
        *,
        body_max_bytes: int,
        idle_s: float,
        compress: bool,
        access_log: AccessLog | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._logger = logger
        self._access_log = access_log
        self._body_max_bytes = body_max_bytes
        self._compress = compress
        self._server = _BoundedServer(
            self._handle,
            logger=logger,
            access_log=None,
            keepalive_timeout=idle_s,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            auto_decompress=False,
            lingering_time=CLOSE_S,
        )
        self._runner = web.ServerRunner(self._server, shutdown_timeout=CLOSE_S)
        self.listeners: list[tuple[str, int]] = []
        self._tls_servers: list[asyncio.Server] = []
        self._handshakes: set[TlsHandshake] = set()

    async def start(self, address: Address, tls: TlsOptions | None = None) -> None:
        """Accept requests. Raises: OSError."""
        if not self.listeners:
            await self._runner.setup()
        if tls is not None:
            self.listeners.append((address.host, await self._listen(address, server_context(tls))))
            return
        site = web.TCPSite(self._runner, address.host or None, address.port, backlog=BACKLOG)
        await site.start()
        self.listeners.append((address.host, site.port if address.port == 0 else address.port))

    async def _listen(self, address: Address, context: ssl.SSLContext) -> int:
        """Accept requests with TLS, and return the port. Raises: OSError."""

        def accepted() -> TlsHandshake:
            handshake = TlsHandshake(
                context,
                TLS_HANDSHAKE_S,
                lambda header: self._server(),
                self._logger.warning,
                self._handshakes.discard,
            )
            self._handshakes.add(handshake)
            return handshake

        server = await asyncio.get_running_loop().create_server(
            accepted, address.host or None, address.port, backlog=BACKLOG
        )
        self._tls_servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Accept no more, and end the requests that are under way."""
        self.listeners = []
        for server in self._tls_servers:
            server.close()
        for handshake in list(self._handshakes):
            handshake.abort()
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._server.has_asked(request)
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        incoming = Incoming(
            request.method,
            request.raw_path,
            {name.lower(): value for name, value in request.headers.items()},
            (peer[0], peer[1]) if isinstance(peer, tuple) else ("", 0),
            lambda: self._read(request),
        )
        if request.method in ("GET", "HEAD"):
            self._server.may_leave(request)
        reply = await self._dispatcher.answer(incoming)
        try:
            async with asyncio.timeout(None) as patience:
                response = await self._send(request, reply, patience)
        except TimeoutError:
            # aiohttp takes this error for the client's own leaving.
            raise ConnectionResetError("the client does not read its answer") from None
        self._log_access(request, incoming, response)
        return response

    def _log_access(self, request: web.BaseRequest, incoming: Incoming, response: web.StreamResponse) -> None:
        if self._access_log is None:
            return
        headers = incoming.headers
        caller = auth.credentials(headers.get("authorization"))
        version = f"HTTP/{request.version.major}.{request.version.minor}"
        try:
            self._access_log.write(
                incoming.peer[0],
                "" if caller is None else caller.name,
                f"{incoming.method} {incoming.target} {version}",
                response.status,
                response.body_length if response.prepared else response.content_length or 0,
                headers.get("referer", ""),
                headers.get("user-agent", ""),
            )
        except OSError as error:
            self._access_log = None
            self._logger.warning("Requests are logged no longer: %s", error)

    async def _read(self, request: web.BaseRequest) -> bytes:
        """Read the body. Raises: ApiError (400, 408)."""
        length = request.content_length
        if length is not None and length > self._body_max_bytes:
            raise self._too_long()
        pieces, size = [], 0
        try:
            async with asyncio.timeout(BODY_S):
                async for piece in request.content.iter_any():
                    pieces.append(piece)
                    size += len(piece)
                    if size > self._body_max_bytes:
                        raise self._too_long()
        except TimeoutError:
            raise ApiError(408, "request_timeout", "the body took too long") from None
        return b"".join(pieces)

    def _too_long(self) -> ApiError:
        return bad_request(f"Exceeded HTTP request body size limit of {self._body_max_bytes} bytes")

    async def _send(
        self, request: web.BaseRequest, reply: Reply, patience: asyncio.Timeout
    ) -> web.StreamResponse:
        if reply.value is None and not reply.body:
            return _whole(reply, b"")
        pieces = _pieces(reply.body) if reply.body is not None else encoding.as_json(reply.value)
        first = await anext(pieces)
        second = await anext(pieces, None)
        if second is None and (len(first) <= encoding.GZIP_WORTH_BYTES or not self._packs(request)):
            return _whole(reply, first)
        rest = _after(first, second, pieces)
        headers = {**reply.headers, "content-type": reply.content_type}
        response = web.StreamResponse(status=reply.status, headers=headers)
        if self._packs(request):
            response.headers["content-encoding"] = "gzip"
            rest = encoding.gzipped(rest)
        await response.prepare(request)
        if request.method != "HEAD":
            async for piece in rest:
                patience.reschedule(asyncio.get_running_loop().time() + WRITE_S)
                await response.write(piece)
        patience.reschedule(asyncio.get_running_loop().time() + WRITE_S)
        await response.write_eof()
        return response

    def _packs(self, request: web.BaseRequest) -> bool:
        return self._compress and "gzip" in request.headers.get("accept-encoding", "").lower()


def _whole(reply: Reply, body: bytes) -> web.Response:
    headers = dict(reply.headers)
    if body:
        headers["content-type"] = reply.content_type
    return web.Response(status=reply.status, headers=headers, body=body)


async def _pieces(body: bytes | Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in (body,) if isinstance(body, bytes) else body:
        yield piece
        await asyncio.sleep(0)


async def _after(first: bytes, second: bytes | None, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    if second is not None:
        yield second
    async for piece in rest:
        yield piece


class _Protocol(RequestHandler):
    """aiohttp's side of one connection, with our texts for errors."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to bytes that are no HTTP, or after a fault of a handler; the connection ends with it."""
        if status == 500:
            self.logger.error("A request to %s broke", request.raw_path, exc_info=exc)
            error = ApiError(500, "internal_error", "the broker has a fault: see its log")
        else:
            # Any client can send that again and again: it is not worth a line.
            error = ApiError(status, "bad_request", "this is not valid HTTP")
        if request.writer.output_size > 0:
            raise ConnectionError("the answer was under way")
        response = _whole(error.reply(), encoding.dumps(error.reply().value))
        response.headers["server"] = PRODUCT
        response.force_close()
        return response


class _BoundedServer(web.Server):
    """aiohttp's server with a limit of connections, and a time limit until the first request."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._options = options
        self._silent: set[object] = set()
        """Connections that have sent no request yet."""
        self._reading: dict[object, asyncio.Task[Any]] = {}
        """Tasks of requests that change nothing, by their connections."""

    def __call__(self) -> RequestHandler:
        return _Protocol(self, loop=asyncio.get_running_loop(), **self._options)

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
            return
        self._silent.add(handler)
        asyncio.get_running_loop().call_later(FIRST_REQUEST_S, self._check, handler, transport)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._silent.discard(handler)
        if (task := self._reading.pop(handler, None)) is not None:
            task.cancel()

    def has_asked(self, request: web.BaseRequest) -> None:
        """Note that a connection's first request is complete."""
        self._silent.discard(request.protocol)
        self._reading.pop(request.protocol, None)

    def may_leave(self, request: web.BaseRequest) -> None:
        """Let the work on this request end when its client leaves, as it changes nothing."""
        task = asyncio.current_task()
        assert task is not None
        self._reading[request.protocol] = task

    def _check(self, handler: object, transport: asyncio.Transport) -> None:
        if handler in self._silent:
            self._silent.discard(handler)
            transport.abort()
