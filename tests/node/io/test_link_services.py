"""Services of shovels and links answer for a node that runs none: rows, numbers, restarts."""

import asyncio
from typing import Any

import pytest

from node.config.config import Config
from node.federation.metrics import STATES
from node.io.federation import FederationService
from node.io.plugin_service import PluginService, ServiceHost
from node.io.shovels import ShovelService
from tests.kit.world import World


def _answers(kind: Any, *questions: tuple[str, dict[str, Any]]) -> list[Any]:
    """Return a service's answers to these questions, as a node would."""

    async def ask() -> list[Any]:
        service: PluginService = kind(ServiceHost(World().broker, Config("n@test", "/nowhere", "test")))
        service.start()
        try:
            return [service.answer(question, arguments) for question, arguments in questions]
        finally:
            service.stop(is_removed=False)

    return asyncio.run(ask())


def test_shovels() -> None:
    rows, numbers, restarted = _answers(
        ShovelService,
        ("shovels", {}),
        ("metrics", {"has_rows": True}),
        ("restart", {"vhost": "/", "name": "s"}),
    )
    nothing = {"starting": 0, "running": 0, "terminated": 0}
    assert (rows, restarted) == ([], False)
    assert numbers == {
        "states": {"dynamic": nothing, "static": nothing},
        "totals": {"forwarded": 0, "confirmed": 0, "refused": 0, "failures": 0},
        "rows": [],
        "left_out": 0,
    }


def test_links() -> None:
    rows, numbers, restarted = _answers(
        FederationService, ("links", {}), ("metrics", {}), ("restart", {"id": "12345678"})
    )
    assert (rows, restarted) == ([], False)
    assert numbers == {
        "states": dict.fromkeys(STATES, 0),
        "totals": {"taken": 0, "dropped": 0, "refused": 0, "failures": 0},
        "rows": [],
        "left_out": 0,
    }


@pytest.mark.parametrize("kind", [ShovelService, FederationService])
def test_a_question_that_is_not_known(kind: Any) -> None:
    with pytest.raises(LookupError):
        _answers(kind, ("weather", {}))
