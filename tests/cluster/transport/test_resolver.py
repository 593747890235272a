"""Lookups of names."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from cluster.transport.resolver import addresses

pytestmark = pytest.mark.real


def test_names_that_nobody_answers_for_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    over, asked = threading.Event(), []
    look_up = socket.getaddrinfo

    def slowly(host: str, port: int, **options: Any) -> Any:
        if options.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        asked.append(host)
        if host.startswith("gone"):
            over.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return look_up(host, port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)

    async def story() -> None:
        silent = [asyncio.create_task(addresses(f"gone{number % 20}", 1)) for number in range(60)]
        await asyncio.sleep(0)
        silent[0].cancel()
        found = await asyncio.wait_for(addresses("localhost", 7), 10)
        assert found[0][4][1] == 7
        assert len(asked) == 21, "one lookup for each name"
        over.set()
        ends = await asyncio.gather(*silent, return_exceptions=True)
        assert isinstance(ends[0], asyncio.CancelledError)
        assert all(isinstance(end, socket.gaierror) for end in ends[1:])

    asyncio.run(story())
