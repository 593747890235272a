"""The vhosts of ports and of client certificates: two global parameters, as RabbitMQ's plug-in has them.

    fluffle ctl set_global_parameter mqtt_port_to_vhost_mapping '{"1883": "meters", "8883": "gates"}'
    fluffle ctl set_global_parameter mqtt_default_vhosts '{"O=works,CN=gate 7": "gates"}'
Source: RabbitMQ 3.10.8, rabbit_mqtt_processor: get_vhost_from_port_mapping, get_vhost_from_user_mapping.
"""

from collections.abc import Callable
from typing import Final

PORTS: Final = "mqtt_port_to_vhost_mapping"
"""The vhost for each port on which clients come in."""

CERTIFICATES: Final = "mqtt_default_vhosts"
"""The vhost for the name that a client certificate proves."""


class VhostMapping:
    """The mapping of one cluster.   parameter: returns the value of a global parameter, or None."""

    def __init__(self, parameter: Callable[[str], object]) -> None:
        self._parameter = parameter

    def of_port(self, local: str) -> str | None:
        """Return the vhost of the port of a local address, `IP:PORT`; None: it has none."""
        return self._find(PORTS, local.rpartition(":")[2])

    def of_certificate(self, name: str) -> str | None:
        """Return the vhost of a name that a certificate proves; None: it has none."""
        return self._find(CERTIFICATES, name)

    def _find(self, parameter: str, key: str) -> str | None:
        mapping = self._parameter(parameter)
        found = mapping.get(key) if isinstance(mapping, dict) else None
        return found if isinstance(found, str) else None
