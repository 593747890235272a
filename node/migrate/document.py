"""The definitions that a migration imports, made of those that a RabbitMQ exports, and what is left out of them.

Each object is read as Fluffle's import reads it (`node.definitions`), one at a time, so that each that cannot be
taken is found, with what hangs on it. Left out beside them:

* names that begin with `amq.`: each broker has its own;
* shovels, federation and the like: they would run at both brokers and move or copy each message twice;
* the name of the cluster and other global parameters that belong to the broker itself;
* users whom the other broker has: theirs is the password by which the migration itself may be logged in.
"""

from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from node.catalogue.names import RESERVED_PREFIX
from node.catalogue.records import Json
from node.definitions.document import read
from node.definitions.reading import DefinitionsInvalid, Unsupported
from node.migrate.answers import Row, rows, text
from node.migrate.clients import MOVER
from node.migrate.findings import Finding
from node.migrate.queues import Key
from node.migrate.shovels import is_of_migration

LINKS: Final = ("shovel", "federation-upstream", "federation-upstream-set")
"""Components of runtime parameters that move messages by themselves."""

OF_THE_BROKER: Final = frozenset(
    {"cluster_name", "internal_cluster_id", "imported_definition_hash_value", "mqtt_port_to_vhost_mapping"}
)
"""Global parameters that are not taken along. The last is set by ports, which are others here."""

STEP_OBJECTS: Final = 200
"""After so many objects the reader yields."""

_SECTIONS: Final = {
    "vhosts": "virtual host",
    "users": "user",
    "permissions": "permission",
    "topic_permissions": "topic permission",
    "global_parameters": "global parameter",
    "parameters": "parameter",
    "policies": "policy",
    "exchanges": "exchange",
    "queues": "queue",
    "bindings": "binding",
}


class Abilities(NamedTuple):
    """The exchange types that a broker has, or may have by a plug-in, and the plug-ins whose parameters it takes."""

    exchange_types: Collection[str]
    plugins: Collection[str] = ()


@dataclass(slots=True)
class Document:
    """The definitions to import.

    version: of RabbitMQ.   sections: lists of objects, as Fluffle takes them.   left_queues, left_exchanges: those that
    are not in it, although RabbitMQ has them.   findings: why.
    """

    version: str = ""
    sections: dict[str, list[Json]] = field(default_factory=dict)
    left_queues: set[Key] = field(default_factory=set)
    left_exchanges: set[Key] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    @property
    def json(self) -> dict[str, Json]:
        """The document as JSON."""
        return {"rabbitmq_version": self.version, **self.sections}


def document(
    exported: Row, abilities: Abilities, users: Mapping[str, str] | None = None
) -> Generator[None, None, Document]:
    """Make the document to import, in steps.

    abilities: of the other broker.   users: the password hashes of the users whom it has.
    """
    version = text(exported, "rabbitmq_version") or text(exported, "rabbit_version")
    found, count = Document(version), 0
    for section, noun in _SECTIONS.items():
        taken = found.sections[section] = []
        for item in rows(exported.get(section)):
            if _is_wanted(found, section, item, users or {}) and _is_readable(
                found, section, noun, item, version, abilities
            ):
                taken.append(dict(item))
            count += 1
            if count % STEP_OBJECTS == 0:
                yield
    _leave_dangling_bindings(found)
    return found


def of_vhosts(found: Document, vhosts: Collection[str]) -> None:
    """Leave objects of other vhosts out of a document. Users stay; none is named: all stay."""
    if not vhosts:
        return
    for section, items in found.sections.items():
        key = "name" if section == "vhosts" else "vhost"
        found.sections[section] = [
            dict(row) for row in rows(list(items)) if not text(row, key) or text(row, key) in vhosts
        ]


def _is_wanted(found: Document, section: str, item: Row, users: Mapping[str, str]) -> bool:
    name = text(item, "name")
    if text(item, "user") == MOVER or (section == "users" and name == MOVER):
        return False
    match section:
        case "parameters" if is_of_migration(name):
            return False
        case "parameters" if text(item, "component") in LINKS:
            component = text(item, "component")
            found.findings.append(
                Finding(
                    "differs",
                    component,
                    name,
                    "is not taken along: it would run at both brokers",
                    text(item, "vhost"),
                    "set it at Fluffle, and clear it at RabbitMQ, when its queues and exchanges have moved",
                )
            )
            return False
        case "global_parameters":
            return name not in OF_THE_BROKER
        case "users" if name in users:
            if users[name] != text(item, "password_hash"):
                found.findings.append(
                    Finding(
                        "differs",
                        "user",
                        name,
                        "is at both brokers, with passwords that may differ: Fluffle's stays",
                        advice=f"fluffle ctl change_password {name} PASSWORD, if clients use it",
                    )
                )
            return False
        case "exchanges" | "queues":
            return not name.startswith(RESERVED_PREFIX) and bool(name)
        case "bindings":
            return bool(text(item, "source"))  # those of the default exchange are there by themselves
    return True


def _is_readable(
    found: Document, section: str, noun: str, item: Row, version: str, abilities: Abilities
) -> bool:
    """Return whether Fluffle takes an object, and note what it leaves out of it."""
    alone: dict[str, Json] = {section: [dict(item)], "rabbitmq_version": version}
    vhost, name = text(item, "vhost"), _name(section, item)
    try:
        taken = read(
            alone,
            exchange_types=abilities.exchange_types,
            plugins=abilities.plugins,
            skips_unsupported=True,
        )
    except DefinitionsInvalid as invalid:
        kind = "is not supported" if isinstance(invalid, Unsupported) else "is refused"
        left_out, is_left = [f"{kind}: {_reason(invalid)}"], True
    else:
        # An object without what is not supported, or none at all.
        is_left = not (getattr(taken, section) or taken.limits)
        kind = "not taken" if is_left else "taken without"
        left_out = [f"is {kind}: {_short(each)}" for each in taken.left_out]
    for each in left_out:
        found.findings.append(Finding("blocks" if is_left else "differs", noun, name, each, vhost))
    if is_left and section == "queues":
        found.left_queues.add((vhost, name))
    if is_left and section == "exchanges":
        found.left_exchanges.add((vhost, name))
    return not is_left


def _name(section: str, item: Row) -> str:
    match section:
        case "permissions":
            return text(item, "user")
        case "topic_permissions":
            return f"{text(item, 'user')} on {text(item, 'exchange')}"
        case "bindings":
            return f"{text(item, 'source')} → {text(item, 'destination')}"
        case "parameters":
            return f"{text(item, 'component')} {text(item, 'name')}"
    return text(item, "name")


def _reason(invalid: DefinitionsInvalid) -> str:
    reason = invalid.reason
    return " ".join((reason if isinstance(reason, str) else ": ".join(map(str, reason))).split())


def _short(left_out: str) -> str:
    """Return the reason of a text of `Definitions.left_out`, which begins with the object that is named already."""
    return left_out.partition("}: ")[2] or left_out.partition(" of ")[0]


def _leave_dangling_bindings(found: Document) -> None:
    """Leave out bindings to or from an object that is left out."""
    kept = []
    for row in rows(list(found.sections["bindings"])):
        vhost = text(row, "vhost")
        is_queue = text(row, "destination_type") == "queue"
        there = found.left_queues if is_queue else found.left_exchanges
        if (vhost, text(row, "source")) in found.left_exchanges or (vhost, text(row, "destination")) in there:
            name = f"{text(row, 'source')} → {text(row, 'destination')}"
            found.findings.append(
                Finding("blocks", "binding", name, "is left out with the object at its end", vhost)
            )
        else:
            kept.append(dict(row))
    found.sections["bindings"] = list(kept)
