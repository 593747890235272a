"""This module reads the file of enabled plug-ins, an Erlang list: `[rabbitmq_management,rabbitmq_prometheus].`

Most of ours are no plug-ins but parts of the node, which the same names switch; those with exchange types stand in
`node.plugins`, and others may be packages of their own. Names that we do not have are kept, as
the file may be shared with RabbitMQ, or be written into an image. This module opens no file. Source: management §3.2.
"""

import re
from collections.abc import Iterable
from typing import Final

MANAGEMENT: Final = "rabbitmq_management"
PROMETHEUS: Final = "rabbitmq_prometheus"

EVENTS: Final = "rabbitmq_event_exchange"

EXCHANGES: Final = (
    "rabbitmq_consistent_hash_exchange",
    "rabbitmq_random_exchange",
    "rabbitmq_sharding",
)
"""The plug-ins that bring exchange types."""

FOR_ALL_NODES: Final = (
    *EXCHANGES,
    "rabbitmq_auth_backend_http",
    "rabbitmq_federation",
    "rabbitmq_federation_management",
    "rabbitmq_mqtt",
    "rabbitmq_shovel",
    "rabbitmq_shovel_management",
    "rabbitmq_stomp",
    "rabbitmq_web_mqtt",
    "rabbitmq_web_stomp",
)
"""The built-in plug-ins that are enabled on all nodes of a cluster together."""

_MANAGEMENT_NEEDS: Final = ("rabbitmq_management_agent", "rabbitmq_web_dispatch")

PLUGINS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(FOR_ALL_NODES, ()),
    "rabbitmq_shovel_management": ("rabbitmq_shovel", *_MANAGEMENT_NEEDS, MANAGEMENT),
    "rabbitmq_federation_management": ("rabbitmq_federation", *_MANAGEMENT_NEEDS, MANAGEMENT),
    EVENTS: (),
    MANAGEMENT: _MANAGEMENT_NEEDS,
    "rabbitmq_management_agent": ("rabbitmq_web_dispatch",),
    PROMETHEUS: _MANAGEMENT_NEEDS,
    "rabbitmq_web_dispatch": (),
}
"""The plug-ins whose work this node does itself, and the plug-ins that each needs."""

NAME_PREFIX: Final = "rabbitmq_"
"""The beginning of the names of most plug-ins, which an operator may leave out."""

DEFAULT: Final = (MANAGEMENT, PROMETHEUS)
"""The plug-ins that are on when no file says otherwise."""

FILE_MAX_BYTES: Final = 65536

_COMMENT: Final = re.compile(r"%[^\n]*")
_LIST: Final = re.compile(r"\s*\[(.*)\]\s*\.\s*", re.DOTALL)
_NAME: Final = re.compile(r"'([a-z0-9_@.-]{1,255})'|([a-z][A-Za-z0-9_@]{0,254})")


def parse(content: bytes) -> tuple[str, ...]:
    """Return the names in the file, each once, in their order; an empty file has none.

    Raises: ValueError with the format that the file must have.
    """
    try:
        text = _COMMENT.sub("", content[: FILE_MAX_BYTES + 1].decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError(_ALLOWED) from None
    if not text.strip():
        return ()
    terms = _LIST.fullmatch(text)
    if terms is None or len(content) > FILE_MAX_BYTES:
        raise ValueError(_ALLOWED)
    names = [_NAME.fullmatch(term.strip()) for term in terms[1].split(",")] if terms[1].strip() else []
    found: dict[str, None] = {}
    for match in names:
        if match is None:
            raise ValueError(_ALLOWED)
        found[match[1] or match[2]] = None
    return tuple(found)


_ALLOWED: Final = "allowed: [NAME,NAME]. as rabbitmq-plugins writes it"


def render(names: Iterable[str]) -> bytes:
    """Return the content of a file that enables `names`."""
    atoms = (name if re.fullmatch(r"[a-z][A-Za-z0-9_@]*", name) else f"'{name}'" for name in names)
    return f"[{','.join(atoms)}].\n".encode()


def whole_name(name: str) -> str:
    """Return the name of a plug-in of ours for its short name: `stomp` is `rabbitmq_stomp`. Other names stay."""
    whole = f"{NAME_PREFIX}{name}"
    return whole if whole in PLUGINS else name


def is_on(plugin: str, enabled: Iterable[str] | None) -> bool:
    """Return whether a plug-in of ours runs: enabled itself or needed by one that is. `enabled` None: the default."""
    return plugin in with_needed(DEFAULT if enabled is None else enabled)


def with_needed(enabled: Iterable[str]) -> list[str]:
    """Return the enabled plug-ins that we have, and those that they need, sorted."""
    running = {name for name in enabled if name in PLUGINS}
    return sorted(running.union(*(PLUGINS[name] for name in running)))
