"""Messages that wait in delayed exchanges, as `fluffle ctl` asks a node alone for them."""

import json
from pathlib import Path

import pytest

from tests.kit.agent import Asker, directory, serve

pytestmark = pytest.mark.real

__all__ = ["directory"]  # a fixture

EXCHANGE = {
    "vhost": "/",
    "name": "x",
    "type": "x-delayed-message",
    "durable": True,
    "auto_delete": False,
    "internal": False,
    "arguments": {"x-delayed-type": "direct"},
}


def test_an_exchange_without_messages_and_others(directory: Path) -> None:
    def asks(ask: Asker) -> None:
        ask("import_definitions", part=json.dumps({"exchanges": [EXCHANGE]}))
        asked = {"vhost": "/", "exchange": "x"}
        assert ask("list_delayed", **asked, first=0, count=10) == {"rows": []}
        text = "message 1 does not wait in exchange 'x'"
        assert ask.fails("cancel_delayed", **asked, message=1) == (69, text)
        for exchange in ("amq.direct", "nope"):
            text = f"there is no delayed exchange '{exchange}' in vhost '/'"
            found = ask.fails("list_delayed", vhost="/", exchange=exchange, first=0, count=1)
            assert found == (69, text)
        text = "Virtual host 'v' does not exist"
        assert ask.fails("cancel_delayed", vhost="v", exchange="x", message=1) == (69, text)

    serve(directory, asks)
