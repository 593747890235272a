"""A slow link between nodes passes all bytes in order, and none at once."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.kit.network import HOST, NAMES, ProxyNetwork
from tests.kit.proxies import Proxies

NEVER_S = 1000.0


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


def _through_a_proxy(
    delay_s: float, ask: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]
) -> bytes:
    """Return what an echo's client gets behind a link with this delay."""

    async def talk() -> bytes:
        proxies = Proxies()
        async with await asyncio.start_server(_echo, HOST, 0) as server:
            port = server.sockets[0].getsockname()[1]
            await proxies.do({"do": "target", "name": "n1", "host": HOST, "port": port})
            await proxies.do({"do": "slow", "pairs": None, "delay_s": delay_s})
            reader, writer = await asyncio.open_connection(
                HOST, await proxies.do({"do": "open", "name": "n1"})
            )
            try:
                return await ask(reader, writer)
            finally:
                writer.close()
                await proxies.do({"do": "close", "name": "n1"})

    return asyncio.run(talk())


def test_a_slow_link_gives_all_in_order() -> None:
    sent = b"".join(number.to_bytes(4, "big") for number in range(5000))

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for start in range(0, len(sent), 400):
            writer.write(sent[start : start + 400])
            await asyncio.sleep(0)
        return await reader.readexactly(len(sent))

    assert _through_a_proxy(0.02, ask) == sent


def test_a_slow_link_gives_nothing_at_once() -> None:
    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"soon?")
        done, _ = await asyncio.wait([asyncio.ensure_future(reader.read(5))], timeout=0.2)
        return b"".join(each.result() for each in done)

    assert _through_a_proxy(NEVER_S, ask) == b""
    assert _through_a_proxy(0.0, ask) == b"soon?"


def test_the_process_knows_the_words() -> None:
    network = ProxyNetwork()
    try:
        network.slow(NAMES[:1], 0.5)
        network.cut([(NAMES[0], NAMES[1])], "silent")
        network.heal()
        assert len({network.place(name).http_port for name in NAMES}) == len(NAMES)
    finally:
        network.close()
