"""The listener for HTTP, with sockets on loopback."""

import asyncio
import contextlib
import gzip
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509

from node.config.config import ManagementConfig, TlsOptions
from node.config.values import Address
from node.management import server as module
from node.management.call import Call
from node.management.dispatcher import Dispatcher
from node.management.reply import Reply, no_content, ok
from node.management.routes import Access, Route
from node.management.server import HttpServer
from node.management.site import Site
from tests.kit.authority import Authority, client_context
from tests.kit.fake_site import FakeSite

pytestmark = pytest.mark.real

BODY_MAX = 10_000


async def long_list(call: Call) -> Reply:
    return ok([{"number": number} for number in range(5000)])


async def echo(call: Call) -> Reply:
    return ok(await call.body())


async def nothing(call: Call) -> Reply:
    return no_content()


async def breaks(call: Call) -> Reply:
    raise ZeroDivisionError


async def in_pieces(call: Call) -> Reply:
    return Reply(200, body=[b"metric 1\n"] * 1000, content_type="text/plain; charset=utf-8")


WORKING: list[str] = []
"""Requests that take for ever write here that they work and how they ended."""


async def for_ever(call: Call) -> Reply:
    WORKING.append("begun")
    try:
        await asyncio.Event().wait()
    finally:
        WORKING.append("ended")
    return no_content()


ROUTES = [
    Route("GET", "/for-ever", for_ever, Access.PUBLIC),
    Route("PUT", "/for-ever", for_ever, Access.PUBLIC),
    Route("GET", "/pieces", in_pieces, Access.PUBLIC),
    Route("GET", "/list", long_list, Access.PUBLIC),
    Route("POST", "/echo", echo, Access.PUBLIC),
    Route("DELETE", "/nothing", nothing, Access.PUBLIC),
    Route("GET", "/breaks", breaks, Access.PUBLIC),
]

Exchange = Callable[[bytes], Awaitable[tuple[str, dict[str, str], bytes]]]


def serve(story: Callable[[Exchange, int], Awaitable[None]], *, compress: bool = True) -> None:
    """Run the story against a server."""

    async def run() -> None:
        dispatcher = Dispatcher(cast(Site, FakeSite()), ManagementConfig(), ROUTES)
        server = HttpServer(
            dispatcher, logging.getLogger("test"), body_max_bytes=BODY_MAX, idle_s=5.0, compress=compress
        )
        await server.start(Address("127.0.0.1", 0))
        ((_, port),) = server.listeners

        async def exchange(request: bytes) -> tuple[str, dict[str, str], bytes]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            answer = await asyncio.wait_for(reader.read(), 10.0)
            writer.close()
            head, _, body = answer.partition(b"\r\n\r\n")
            status, *lines = head.decode().split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
            return status, headers, body

        try:
            async with asyncio.timeout(20.0):
                await story(exchange, port)
        finally:
            await server.close()

    asyncio.run(run())


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: x", "connection: close", *headers]
    if body:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def unchunked(body: bytes) -> bytes:
    found = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        found, body = found + body[:length], body[length + 2 :]
    return found


def test_a_long_list_comes_in_pieces_packed_for_who_wants_it() -> None:
    async def story(exchange: Exchange, port: int) -> None:
        expected = [{"number": number} for number in range(5000)]
        status, headers, body = await exchange(request("GET", "/api/list"))
        assert status == "HTTP/1.1 200 OK"
        assert (headers["content-type"], headers["server"]) == ("application/json", "Fluffle")
        assert json.loads(unchunked(body)) == expected
        _, headers, body = await exchange(request("GET", "/api/list", b"", "accept-encoding: gzip"))
        assert headers["content-encoding"] == "gzip"
        assert json.loads(gzip.decompress(unchunked(body))) == expected
        status, _, body = await exchange(request("HEAD", "/api/list"))
        assert (status, body) == ("HTTP/1.1 200 OK", b"")

    serve(story)


def test_text_in_pieces() -> None:
    async def story(exchange: Exchange, port: int) -> None:
        status, headers, body = await exchange(request("GET", "/api/pieces"))
        assert (status, headers["content-type"]) == ("HTTP/1.1 200 OK", "text/plain; charset=utf-8")
        assert unchunked(body) == b"metric 1\n" * 1000

    serve(story)


def test_packing_can_be_off() -> None:
    async def story(exchange: Exchange, port: int) -> None:
        _, headers, _ = await exchange(request("GET", "/api/list", b"", "accept-encoding: gzip"))
        assert "content-encoding" not in headers

    serve(story, compress=False)


def test_empty_answers() -> None:
    async def story(exchange: Exchange, port: int) -> None:
        status, headers, body = await exchange(request("DELETE", "/api/nothing"))
        assert (status, body) == ("HTTP/1.1 204 No Content", b"")
        assert "content-type" not in headers

    serve(story)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_is_too_long(is_chunked: bool) -> None:
    async def story(exchange: Exchange, port: int) -> None:
        body = b'{"a":"' + b"x" * BODY_MAX + b'"}'
        data = request("POST", "/api/echo", body)
        if is_chunked:
            data = request("POST", "/api/echo", b"", "transfer-encoding: chunked")
            data += b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        status, _, answer = await exchange(data)
        assert status == "HTTP/1.1 400 Bad Request"
        assert "size limit" in json.loads(answer)["reason"]
        body = b'{"a":"' + b"x" * (BODY_MAX - 10) + b'"}'
        status, _, _ = await exchange(request("POST", "/api/echo", body))
        assert status == "HTTP/1.1 200 OK"

    serve(story)


def test_a_fault_of_ours_is_500_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def story(exchange: Exchange, port: int) -> None:
        status, headers, body = await exchange(request("GET", "/api/breaks"))
        assert status.startswith("HTTP/1.1 500")
        assert json.loads(body)["error"] == "internal_error"
        assert headers["server"] == "Fluffle"

    serve(story)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /api/list HTTP/9.9\r\n\r\n",
        b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /api/list HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(data: bytes) -> None:
    async def story(exchange: Exchange, port: int) -> None:
        status, _, _ = await exchange(data)
        assert status.split(" ")[1] in ("400", "431", "505", "414"), status

    serve(story)


def test_who_asks_for_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_REQUEST_S", 0.05)

    async def story(exchange: Exchange, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /api/list HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()

    serve(story)


async def until_served(exchange: Exchange, data: bytes, status: str) -> None:
    """Ask again and again until there is such an answer: connections that were closed may count for a while."""
    async with asyncio.timeout(10.0):
        while True:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                if (await exchange(data))[0].startswith(status):
                    return


def test_connections_beyond_the_bound_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 2)

    async def story(exchange: Exchange, port: int) -> None:
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]  # accepted in this order
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        for _, each in [*kept, (reader, writer)]:
            each.close()
        await until_served(exchange, request("DELETE", "/api/nothing"), "HTTP/1.1 204")

    serve(story)


def test_who_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_S", 0.2)

    async def endless(call: Call) -> Reply:
        return ok(["x" * 1000] * 50_000)

    monkeypatch.setitem(globals(), "long_list", endless)
    monkeypatch.setattr(module, "CLOSE_S", 0.2)
    routes: list[Any] = [Route("GET", "/list", endless, Access.PUBLIC)]
    monkeypatch.setitem(globals(), "ROUTES", routes)

    async def story(exchange: Exchange, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(request("GET", "/api/list"))
        await asyncio.sleep(1.0)
        size = 0
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65536):
                size += len(piece)
        assert size < 40_000_000
        writer.close()

    serve(story)


def test_https_serves_and_a_handshake_that_fails_has_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    own = authority.issue([("CN", "localhost")], [x509.DNSName("localhost")])

    async def run() -> None:
        dispatcher = Dispatcher(cast(Site, FakeSite()), ManagementConfig(), ROUTES)
        logger = logging.getLogger("test")
        server = HttpServer(dispatcher, logger, body_max_bytes=BODY_MAX, idle_s=5.0, compress=False)
        await server.start(Address("127.0.0.1", 0), TlsOptions(own.certificate_file, own.key_file))
        ((_, port),) = server.listeners
        try:
            async with asyncio.timeout(20.0):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=client_context(authority), server_hostname="localhost"
                )
                writer.write(b"DELETE /api/nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                assert (await reader.readline()).startswith(b"HTTP/1.1 204")
                writer.close()
                assert caplog.messages == []
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                peer = "{}:{}".format(*writer.get_extra_info("sockname"))
                writer.write(b"GET /api/list HTTP/1.1\r\n\r\n")
                await reader.read()
                writer.close()
        finally:
            await server.close()
        assert caplog.messages == [
            f"TLS handshake {peer} -> 127.0.0.1:{port} failed: 'http request' (the client speaks HTTP without TLS)"
        ]

    asyncio.run(run())


@pytest.mark.parametrize(("method", "ends"), [("GET", True), ("PUT", False)])
def test_work_for_who_has_left_ends_unless_it_changes_something(method: str, ends: bool) -> None:
    WORKING.clear()

    async def story(exchange: Exchange, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{method} /api/for-ever HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".encode())
        while not WORKING:
            await asyncio.sleep(0.01)
        writer.transport.abort()
        for _ in range(5):  # so that others were served since
            await exchange(b"GET /api/list HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (["begun", "ended"] if ends else ["begun"]) == WORKING

    serve(story)
