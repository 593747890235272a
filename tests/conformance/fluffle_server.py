"""Fluffle in a thread of the test process, and its operator."""

from collections.abc import Mapping
from typing import Any


class FluffleServer:
    """PLACEHOLDER until node/app.py is there."""

    host: str
    port: int
    admin: Any

    def __init__(self, settings: Mapping[str, str]) -> None:
        raise RuntimeError("node/app.py is not there yet: set FLUFFLE_TEST_AGAINST=rabbitmq")

    def stop(self) -> None:
        pass
