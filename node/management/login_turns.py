"""Logins that wait for an auth backend are looked at one at a time for each guesser: parallel guesses gain nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from node.management.auth import NAME_MAX, network_of


class LoginTurns:
    """A lock for each network and user with a login under way. There are no more than requests under way."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def turn(self, host: str, name: str) -> AsyncIterator[None]:
        """Wait until no earlier login of this network for this user is under way, and keep later ones waiting."""
        key = network_of(host), name[:NAME_MAX]
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            _, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = lock, users - 1

    def __len__(self) -> int:
        return len(self._locks)
