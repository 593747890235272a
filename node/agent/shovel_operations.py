"""`fluffle ctl` shows, restarts and deletes shovels. Source: RabbitMQ 3.10.8, the commands of its plug-in."""

from typing import Any, Final

from node.admin import parameters
from node.admin.admin import AdminError
from node.agent.admin_operations import AdminOperations
from node.catalogue.shovel_parameters import PLUGIN, SHOVEL

_NO_SUCH_SHOVEL: Final = "no_such_shovel"


class ShovelOperations(AdminOperations):
    """The operations on the shovels of one agent's cluster."""

    async def shovel_status(self) -> list[dict[str, Any]]:
        """Return the shovels that run on this node."""
        self._running()
        question = _question("shovels", {})
        return await self._agent.management.ask(self._agent.config.node_name, "plugin", question) or []

    async def restart_shovel(self, vhost: str, name: str) -> None:
        """Restart a shovel, on whichever node it runs. Raises: AdminError if there is none of this name."""
        self._running()
        question = _question("restart", {"vhost": vhost, "name": name})
        answers = await self._agent.management.ask_all("plugin", question)
        if not any(answers.values()):
            raise self._missing()

    async def delete_shovel(self, vhost: str, name: str) -> None:
        """Delete a shovel. Raises: AdminError if there is none of this name."""
        try:
            await parameters.clear_parameter(self._admin, vhost, SHOVEL, name)
        except AdminError as error:
            if error.kind == "not_found":
                raise self._missing() from None
            raise

    def _missing(self) -> AdminError:
        return AdminError("not_found", [_NO_SUCH_SHOVEL, self._agent.config.node_name])


def _question(question: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"plugin": PLUGIN, "question": question, "arguments": arguments}
