"""This module has an `Admin` for a broker without disk and sockets, and records its log."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from node.admin.admin import Admin, AdminError
from node.catalogue.catalogue import Catalogue
from node.config.config import AuthOptions, Config
from tests.kit.world import World

ResultT = TypeVar("ResultT")


class Lines(logging.Handler):
    """Keeps level and text of each line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"[{record.levelname.lower()}] {record.getMessage()}")


class Office:
    """An operator's desk: `office.do(put_vhost(office.admin, "v"))`. The vhost `/` and the user `guest` are there."""

    def __init__(self, auth: AuthOptions | None = None) -> None:
        self.world = World()
        self._lines = Lines()
        logger = logging.Logger("test", logging.INFO)
        logger.addHandler(self._lines)
        config = Config("node@test", "/nowhere", "test", auth=auth or AuthOptions())
        self.admin = Admin(self.world.broker, config, logger, "guest")

    @property
    def catalogue(self) -> Catalogue:
        return self.world.broker.catalogue

    def do(self, change: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a command to its end. Returns: its result."""
        return asyncio.run(change)

    def fails(self, change: Coroutine[Any, Any, object]) -> tuple[str, object]:
        """Return kind and reason of the AdminError of a command."""
        with pytest.raises(AdminError) as raised:
            asyncio.run(change)
        return raised.value.kind, raised.value.reason

    def logged(self) -> list[str]:
        """Return the log lines since the last call."""
        lines, self._lines.lines = self._lines.lines, []
        return lines
