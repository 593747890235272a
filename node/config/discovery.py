"""The names for `cluster_formation.peer_discovery_backend`: those of the node itself, and those of plug-ins.

RabbitMQ's backends that are not here are refused when the file is read, and a name that no plug-in brings when the node
looks for a cluster: a node that finds no others must not create one of its own.
"""

import re
from typing import Final

from node.config.values import ValueType

CLASSIC_CONFIG: Final = "classic_config"
DNS: Final = "dns"

_OWN: Final = dict.fromkeys(
    ("classic_config", "classic", "config", "rabbit_peer_discovery_classic_config"), CLASSIC_CONFIG
) | dict.fromkeys(("dns", "rabbit_peer_discovery_dns"), DNS)

_PLUGGED: Final = re.compile(r"(?!rabbit_peer_discovery_|(?:k8s|aws|consul|etcd)\Z)[a-z][a-z0-9_]{0,63}")


def _parse(text: str) -> str:
    if text not in _OWN and _PLUGGED.fullmatch(text) is None:
        raise ValueError(text)
    return _OWN.get(text, text)


DISCOVERY: Final = ValueType(f"{' or '.join(_OWN)} or the name of a plug-in's peer discovery", _parse)
