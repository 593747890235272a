"""`fluffle ctl` shows and restarts federation links. Source: RabbitMQ 3.10.8, the commands of its plug-in."""

from typing import Any, Final

from node.admin.admin import AdminError
from node.agent.admin_operations import AdminOperations

PLUGIN: Final = "rabbitmq_federation"
_GOOD: Final = ("running", "starting")


class FederationOperations(AdminOperations):
    """The operations on the links of one agent's cluster."""

    async def federation_status(self, only_down: bool) -> list[dict[str, Any]]:
        """Return the links that run on this node; `only_down`: those that neither run nor are about to."""
        self._running()
        rows = await self._ask(self._agent.config.node_name, "links", {})
        return [row for row in rows or () if not only_down or row["status"] not in _GOOD]

    async def restart_federation_link(self, link_id: str) -> None:
        """Restart a link, on whichever node it runs. Raises: AdminError if there is none with this id."""
        self._running()
        answers = await self._agent.management.ask_all("plugin", _question("restart", {"id": link_id}))
        if not any(answers.values()):
            raise AdminError("not_found", ["no_such_link"])

    async def _ask(self, node: str, question: str, arguments: dict[str, Any]) -> Any:
        return await self._agent.management.ask(node, "plugin", _question(question, arguments))


def _question(question: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"plugin": PLUGIN, "question": question, "arguments": arguments}
