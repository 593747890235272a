"""What the command line asks about vhosts, their limits, parameters and tracing.

Source: management §3.2, §3.3; RabbitMQ 3.10.8's output.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from node.admin import limits, parameters, vhosts
from node.agent import errors
from node.agent.admin_operations import (
    AdminOperations,
    Arguments,
    Operation,
    as_control_error,
    parsed,
    text,
    text_or_none,
    texts,
)
from node.definitions.rows import parameter_rows
from node.io.control import EX_DATAERR, EX_SOFTWARE, ControlError
from node.process import status

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.app import Node
    from node.process.agent import Agent


class VhostOperations(AdminOperations):
    """See `AdminOperations`."""

    def __init__(self, agent: "Agent", running: "Callable[[], Node]") -> None:
        super().__init__(agent, running)
        self.asking: dict[str, Operation] = {
            "add_vhost": self._add,
            "check_virtual_hosts": self._check,
            "clear_vhost_limits": self._clear_limits,
            "delete_vhost": self._delete,
            "list_vhost_limits": self._list_limits,
            "list_vhosts": self._list,
            "restart_vhost": self._restart,
            "set_vhost_limits": self._set_limits,
            "set_vhost_tags": self._set_tags,
            "trace_off": self._trace_off,
            "trace_on": self._trace_on,
            "clear_global_parameter": self._clear_global_parameter,
            "clear_parameter": self._clear_parameter,
            "list_global_parameters": self._list_global_parameters,
            "list_parameters": self._list_parameters,
            "set_global_parameter": self._set_global_parameter,
            "set_parameter": self._set_parameter,
        }

    # --- vhosts ---

    async def _list(self, arguments: Arguments, timeout_s: float) -> Any:
        running = status.running_nodes(self._agent)
        return {
            "rows": [
                {
                    "name": each.name,
                    "description": each.description,
                    "tags": list(each.tags),
                    "default_queue_type": each.default_queue_type or "undefined",
                    "tracing": vhosts.is_traced(each),
                    "cluster_state": dict.fromkeys(running, "running"),
                }
                for each in sorted(self._catalogue.vhosts(), key=lambda each: each.name)
            ]
        }

    async def _add(self, arguments: Arguments, timeout_s: float) -> Any:
        """One that is there already is left as it is, as by RabbitMQ."""
        name, queue_type = text(arguments, "vhost"), text(arguments, "default_queue_type")
        if self._catalogue.vhost(name) is not None:
            return {}
        if queue_type not in ("", "classic", "quorum"):
            raise errors.unavailable("invalid_queue_type")
        with as_control_error():
            await vhosts.put_vhost(
                self._admin,
                name,
                description=text(arguments, "description"),
                tags=texts(arguments, "tags"),
                default_queue_type=queue_type,
            )
        return {}

    async def _delete(self, arguments: Arguments, timeout_s: float) -> Any:
        name = self._vhost(arguments)
        with as_control_error():
            await vhosts.delete_vhost(self._admin, name)
        return {}

    async def _set_tags(self, arguments: Arguments, timeout_s: float) -> Any:
        name = text(arguments, "vhost")
        if self._catalogue.vhost(name) is None:
            raise ControlError(EX_DATAERR, f'Error:\nVirtual host "{name}" does not exist')
        with as_control_error():
            await vhosts.set_tags(self._admin, name, texts(arguments, "tags"))
        return {}

    async def _restart(self, arguments: Arguments, timeout_s: float) -> Any:
        name, node = text(arguments, "vhost"), self._agent.config.node_name
        if self._catalogue.vhost(name) is None:
            reason = f'{{:no_such_vhost, "{name}"}}'
            raise ControlError(
                EX_SOFTWARE, f"Failed to start vhost '{name}' on node '{node}'Reason: {reason}"
            )
        return {}

    async def _check(self, arguments: Arguments, timeout_s: float) -> Any:
        live = self._running().broker.vhosts
        return {"down": sorted(each.name for each in self._catalogue.vhosts() if each.name not in live)}

    async def _trace_on(self, arguments: Arguments, timeout_s: float) -> Any:
        return await self._trace(arguments, is_on=True)

    async def _trace_off(self, arguments: Arguments, timeout_s: float) -> Any:
        return await self._trace(arguments, is_on=False)

    async def _trace(self, arguments: Arguments, *, is_on: bool) -> Any:
        name = self._vhost(arguments)
        with as_control_error():
            await vhosts.set_tracing(self._admin, name, is_on=is_on)
        return {}

    # --- limits ---

    async def _list_limits(self, arguments: Arguments, timeout_s: float) -> Any:
        if text_or_none(arguments, "vhost") is not None:
            names = [self._vhost(arguments)]
        else:
            names = sorted(each.name for each in self._catalogue.vhosts())
        rows = [(name, limits.vhost_limits(self._admin, name)) for name in names]
        return {"rows": [{"name": name, "limits": found} for name, found in rows if found]}

    async def _set_limits(self, arguments: Arguments, timeout_s: float) -> Any:
        name = self._vhost(arguments)
        value = parsed(text(arguments, "limits"))
        with as_control_error():
            await limits.set_vhost_limits(self._admin, name, value)
        return {}

    async def _clear_limits(self, arguments: Arguments, timeout_s: float) -> Any:
        name = text(arguments, "vhost")
        if self._catalogue.vhost(name) is None:
            raise errors.unavailable(errors.NO_PARAMETER)
        with as_control_error():
            await limits.clear_vhost_limits(self._admin, name)
        return {}

    # --- parameters ---

    async def _list_parameters(self, arguments: Arguments, timeout_s: float) -> Any:
        vhost = self._vhost(arguments)
        return {"rows": sorted(parameter_rows(self._catalogue, vhost), key=_by_name)}

    async def _set_parameter(self, arguments: Arguments, timeout_s: float) -> Any:
        vhost = self._vhost(arguments)
        component, name = text(arguments, "component"), text(arguments, "name")
        value = parsed(text(arguments, "value"))
        with as_control_error():
            await parameters.set_parameter(self._admin, vhost, component, name, value)
        return {}

    async def _clear_parameter(self, arguments: Arguments, timeout_s: float) -> Any:
        vhost = text(arguments, "vhost")
        if self._catalogue.vhost(vhost) is None:
            raise errors.unavailable(errors.NO_PARAMETER)
        component, name = text(arguments, "component"), text(arguments, "name")
        with as_control_error():
            await parameters.clear_parameter(self._admin, vhost, component, name)
        return {}

    async def _list_global_parameters(self, arguments: Arguments, timeout_s: float) -> Any:
        found = sorted(self._catalogue.global_parameters().items())
        return {"rows": [{"name": name, "value": value} for name, value in found]}

    async def _set_global_parameter(self, arguments: Arguments, timeout_s: float) -> Any:
        value = parsed(text(arguments, "value"))
        with as_control_error():
            await parameters.set_global_parameter(self._admin, text(arguments, "name"), value)
        return {}

    async def _clear_global_parameter(self, arguments: Arguments, timeout_s: float) -> Any:
        with as_control_error():
            await parameters.clear_global_parameter(self._admin, text(arguments, "name"))
        return {}


def _by_name(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["component"], row["name"]
