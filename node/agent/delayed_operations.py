"""`fluffle ctl` lists and cancels messages that wait in delayed exchanges. Source: docs/delayed.md."""

from datetime import UTC, datetime
from typing import Any

from node.agent import errors
from node.agent.admin_operations import AdminOperations
from node.catalogue.delayed import DELAYED_TYPE, waiting_queue


class DelayedOperations(AdminOperations):
    """The operations on messages that wait, of one agent."""

    async def list_delayed(self, vhost: str, exchange: str, first: int, count: int) -> list[dict[str, Any]]:
        """Return messages by rising id, at most 500, without their payloads; `due` is a time in UTC."""
        arguments = {"first": first, "count": count, "truncate": 0}
        page = await self._ask(vhost, exchange, "list_delayed", arguments)
        return [{**row, "due": _time(row["due"])} for row in page["messages"]]

    async def cancel_delayed(self, vhost: str, exchange: str, message: int) -> None:
        """Drop a message. Raises: ControlError if it does not wait (any more)."""
        if not await self._ask(vhost, exchange, "cancel_delayed", {"message": message}):
            raise errors.unavailable(f"message {message} does not wait in exchange '{exchange}'")

    async def _ask(self, vhost: str, exchange: str, question: str, arguments: dict[str, Any]) -> Any:
        """Ask the node that has the messages. Raises: ControlError."""
        node, catalogue = self._running(), self._catalogue
        if catalogue.vhost(vhost) is None:
            raise errors.unavailable(f"Virtual host '{vhost}' does not exist")
        record = catalogue.exchange(vhost, exchange)
        if record is None or record.type != DELAYED_TYPE:
            raise errors.unavailable(f"there is no delayed exchange '{exchange}' in vhost '{vhost}'")
        queue = catalogue.queue(vhost, waiting_queue(exchange))
        home = (queue.home if queue is not None else "") or node.config.node_name
        return await self._agent.management.ask(
            home, question, {"vhost": vhost, "exchange": exchange, **arguments}
        )


def _time(at_ms: int) -> str:
    seconds, milliseconds = divmod(at_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z"
