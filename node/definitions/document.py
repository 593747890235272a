"""Read a definitions document, and check it as far as the document alone can tell.

Nothing is changed before all of it has been read, so that a mistake at the end leaves nothing half done; RabbitMQ
stops at the first mistake and keeps what went before. Sections and keys that RabbitMQ does not know either are left
out. Source: management §2.2; what RabbitMQ 3.10.8 takes.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast, get_args

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.catalogue.arguments import validate_queue_arguments
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    SetGlobalParameter,
    SetParameter,
    SetPermission,
    SetPolicy,
    SetTopicPermission,
)
from node.catalogue.components import PLUGIN_POLICY_KEYS, policy_keys
from node.catalogue.exchange_queues import check_exchange_arguments
from node.catalogue.names import RESERVED_PREFIX
from node.catalogue.parameters import OPERATOR_POLICY, POLICY, VHOST_LIMITS, validate_parameter
from node.catalogue.policy_validation import POLICY_KEYS, validate_policy
from node.catalogue.records import DEFAULT_EXCHANGE, EXCHANGE_TYPES, ApplyTo, Json, QueueType, ResourceKind
from node.definitions.reading import (
    DefinitionsInvalid,
    Item,
    Unsupported,
    check_depth,
    check_patterns,
    finish,
    flag,
    items,
    name,
    plain_object,
    shown,
    text,
)
from node.definitions.tables import TableInvalid, table_from_json
from node.definitions.users import UserItem, read_user, tags_of

LIMIT_EXCEEDED: Final = "vhost_limit_exceeded"

PROBLEMS_SHOWN_MAX: Final = 200
"""The most faulty items that an answer names."""

STEP_ITEMS: Final = 100
"""After so many items the reader of a document yields, so that other tasks may run."""


@dataclass(frozen=True, slots=True)
class VhostItem:
    """A vhost of a document.   tracing: None: as it was."""

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    tracing: bool | None = None
    default_queue_type: str = ""


@dataclass(slots=True)
class Definitions:
    """The contents of a document, in the order in which they are to be put.

    queues: without uid and home, which the importer adds.
    limits: of vhosts; put last, as they do not hold for the document's own queues.
    skipped: names that begin with `amq.`, and their nouns: they are not imported.
    left_out: a text for each thing that this broker does not have.
    """

    users: list[UserItem] = field(default_factory=list)
    vhosts: list[VhostItem] = field(default_factory=list)
    permissions: list[SetPermission] = field(default_factory=list)
    topic_permissions: list[SetTopicPermission] = field(default_factory=list)
    exchanges: list[DeclareExchange] = field(default_factory=list)
    global_parameters: list[SetGlobalParameter] = field(default_factory=list)
    policies: list[SetPolicy] = field(default_factory=list)
    parameters: list[SetParameter] = field(default_factory=list)
    queues: list[DeclareQueue] = field(default_factory=list)
    bindings: list[Bind] = field(default_factory=list)
    limits: list[SetParameter] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def read(
    document: Item,
    *,
    vhost: str | None = None,
    node: str = "",
    skips_unsupported: bool = False,
    exchange_types: Collection[str] = EXCHANGE_TYPES,
    plugins: Collection[str] = (),
) -> Definitions:
    """Read a document at once: see `read_steps`."""
    steps = read_steps(
        document,
        vhost=vhost,
        node=node,
        skips_unsupported=skips_unsupported,
        exchange_types=exchange_types,
        plugins=plugins,
    )
    return finish(steps)


def read_steps(
    document: Item,
    *,
    vhost: str | None = None,
    node: str = "",
    skips_unsupported: bool = False,
    exchange_types: Collection[str] = EXCHANGE_TYPES,
    plugins: Collection[str] = (),
) -> Generator[None, None, Definitions]:
    """Read a document. Raises: DefinitionsInvalid, which names all faulty items.

    vhost: the one that all of it is for, whatever it says itself: users, vhosts and the like are left out then.
    node: the name of this node, for one text.   skips_unsupported: leave out what this broker does not have.
    exchange_types: those that it has, the ones of plug-ins included.   plugins: the enabled ones.
    """
    found = Definitions()
    version = document.get("rabbitmq_version") or document.get("rabbit_version") or ""
    reader = _Reader(
        found, vhost, str(version), node, exchange_types, plugins, skips_unsupported=skips_unsupported
    )
    problems: list[tuple[str, DefinitionsInvalid]] = []
    count = 0
    for section, take in reader.sections().items():
        for item in items(document, section):
            try:
                take(item)
            except DefinitionsInvalid as invalid:
                where = f"{section} {shown(item)}"
                if skips_unsupported and isinstance(invalid, Unsupported):
                    found.left_out.append(f"{where}: {_in_one_line(invalid)}")
                else:
                    problems.append((where, invalid))
            count += 1
            if count % STEP_ITEMS == 0:
                yield
    _refuse(problems)
    return found


def _refuse(problems: Sequence[tuple[str, DefinitionsInvalid]]) -> None:
    """Raise DefinitionsInvalid, if there are problems; a single one in RabbitMQ's words."""
    if len(problems) == 1:
        raise problems[0][1]
    if not problems:
        return
    lines = [f"{where}: {_in_one_line(invalid)}" for where, invalid in problems[:PROBLEMS_SHOWN_MAX]]
    if len(problems) > len(lines):
        lines.append(f"and {len(problems) - len(lines)} more")
    count = sum(isinstance(invalid, Unsupported) for _, invalid in problems)
    hint = f"; {count} of them use features that Fluffle lacks; skip_unsupported skips these" if count else ""
    raise DefinitionsInvalid(f"{len(problems)} items cannot be taken{hint}:\n" + "\n".join(lines))


def _in_one_line(invalid: DefinitionsInvalid) -> str:
    reason = invalid.reason
    text = reason if isinstance(reason, str) else ": ".join(map(str, reason))
    return " ".join(text.split())


def check_references(found: Definitions, catalogue: Catalogue) -> None:
    """Refuse items of vhosts and users that are neither in the document nor known. Raises: DefinitionsInvalid."""
    vhosts = {each.name for each in found.vhosts}
    users = {each.name for each in found.users}

    def check(vhost: str) -> None:
        if vhost not in vhosts and catalogue.vhost(vhost) is None:
            raise DefinitionsInvalid(["no_such_vhost", vhost])

    for user in found.users:
        for vhost in user.permissions or {}:
            check(vhost)
    rows: list[SetPermission | SetTopicPermission] = [*found.permissions, *found.topic_permissions]
    for row in rows:
        check(row.vhost)
        if row.user not in users and catalogue.user(row.user) is None:
            raise DefinitionsInvalid(["no_such_user", row.user])
    named = {each.vhost for each in found.exchanges} | {each.vhost for each in found.queues}
    named |= {each.vhost for each in found.policies}
    named |= {each.vhost for each in (*found.parameters, *found.limits)}
    for vhost in sorted(named):
        check(vhost)


def check_queue_limits(found: Definitions, catalogue: Catalogue) -> None:
    """Refuse more queues than vhosts may have now, not counting the document's limits. Raises: DefinitionsInvalid."""
    fresh: dict[str, set[str]] = {}
    for queue in found.queues:
        if catalogue.queue(queue.vhost, queue.name) is None:
            fresh.setdefault(queue.vhost, set()).add(queue.name)
    for vhost, names in fresh.items():
        limit = catalogue.vhost_limits(vhost).max_queues
        present = len(catalogue.queues(vhost))
        if limit is not None and 0 <= limit < present + len(names):
            raise DefinitionsInvalid(
                [
                    LIMIT_EXCEEDED,
                    f'Adding {len(names)} queue(s) to virtual host "{vhost}" would exceed the limit of '
                    f"{limit} queue(s).\n\nThis virtual host currently has {present} queue(s) defined.\n\n"
                    "Import aborted!",
                ]
            )


class _Reader:
    """Reads items of each section into `found`."""

    def __init__(
        self,
        found: Definitions,
        vhost: str | None,
        version: str,
        node: str,
        exchange_types: Collection[str],
        plugins: Collection[str],
        *,
        skips_unsupported: bool,
    ) -> None:
        self._exchange_types = exchange_types
        self._plugins = plugins
        self._policy_keys = POLICY_KEYS.difference(PLUGIN_POLICY_KEYS).union(policy_keys(plugins))
        self._found = found
        self._skips_unsupported = skips_unsupported
        self._only_vhost = vhost
        self._version = version
        self._node = node

    def sections(self) -> dict[str, Callable[[Item], None]]:
        """Return the function that takes an item, by section."""
        of_all: dict[str, Callable[[Item], None]] = {
            "users": self._user,
            "vhosts": self._vhost,
            "permissions": self._permission,
            "topic_permissions": self._topic_permission,
            "global_parameters": self._global_parameter,
        }
        of_vhost: dict[str, Callable[[Item], None]] = {
            "exchanges": self._exchange,
            "policies": self._policy,
            "parameters": self._parameter,
            "queues": self._queue,
            "bindings": self._binding,
        }
        return of_vhost if self._only_vhost is not None else {**of_all, **of_vhost}

    # --- accounts ---

    def _user(self, item: Item) -> None:
        self._found.users.append(read_user(item, name(item, "name", "user"), self._version))

    def _vhost(self, item: Item) -> None:
        metadata = plain_object(item.get("metadata") or {})
        described = metadata if isinstance(metadata, dict) else {}
        description = described.get("description", item.get("description"))
        queue_type = described.get("default_queue_type") or ""
        tracing = item.get("tracing")
        if queue_type == "undefined":
            queue_type = ""
        if queue_type not in ("", *get_args(QueueType)):
            if not self._skips_unsupported:
                raise Unsupported(["invalid_queue_type", queue_type])
            self._found.left_out.append(f"default_queue_type {queue_type} of {shown(item)}")
            queue_type = ""
        self._found.vhosts.append(
            VhostItem(
                name(item, "name", "virtual host"),
                "" if description is None else str(description),
                tags_of(described.get("tags", item.get("tags", []))),
                tracing if isinstance(tracing, bool) else None,
                str(queue_type),
            )
        )

    def _permission(self, item: Item) -> None:
        user, vhost, configure, write, read_ = (
            text(item, key, "permission") for key in ("user", "vhost", "configure", "write", "read")
        )
        check_patterns((configure, write, read_))
        self._found.permissions.append(SetPermission(vhost, user, configure, write, read_))

    def _topic_permission(self, item: Item) -> None:
        user, vhost, exchange, write, read_ = (
            text(item, key, "topic permission") for key in ("user", "vhost", "exchange", "write", "read")
        )
        check_patterns((write, read_))
        self._found.topic_permissions.append(SetTopicPermission(vhost, user, exchange, write, read_))

    # --- parameters ---

    def _global_parameter(self, item: Item) -> None:
        if "value" not in item:
            raise DefinitionsInvalid(f"a global parameter has no value: {shown(item)}")
        check_depth(item["value"])
        parameter = name(item, "name", "global parameter")
        self._found.global_parameters.append(SetGlobalParameter(parameter, item["value"]))

    def _policy(self, item: Item) -> None:
        vhost, policy = self._vhost_of(item, "policy"), name(item, "name", "policy")
        value: dict[str, Json] = {
            "pattern": item.get("pattern"),
            "definition": plain_object(item.get("definition")),
            "priority": item.get("priority", 0),
            "apply-to": item.get("apply-to", "all"),
        }
        self._leave_out_keys(value, item)
        problem = validate_policy(policy, value, operator=False, plugins=self._plugins)
        if problem is not None:
            text = f"Validation failed\n\n{problem}\n ({vhost}/{policy})"
            raise (Unsupported if self._is_newer(value) else DefinitionsInvalid)(text)
        command = SetPolicy(
            vhost,
            policy,
            cast(str, value["pattern"]),
            cast(dict[str, Json], value["definition"]),
            cast(int, value["priority"]),
            cast(ApplyTo, value["apply-to"]),
        )
        self._found.policies.append(command)

    def _leave_out_keys(self, value: dict[str, Json], item: Item) -> None:
        """Remove unknown keys from a policy's definition, unless nothing would be left of it."""
        definition = value["definition"]
        if not self._skips_unsupported or not isinstance(definition, dict):
            return
        known = {key: found for key, found in definition.items() if key in self._policy_keys}
        if known and len(known) < len(definition):
            unknown = ", ".join(sorted(definition.keys() - known.keys()))
            self._found.left_out.append(f"{unknown} of policies {shown(item)}")
            value["definition"] = known

    def _is_newer(self, policy: Mapping[str, Json]) -> bool:
        """True if it has targets or keys that this broker does not know, as RabbitMQ or a plug-in of it may."""
        definition = policy["definition"]
        return policy["apply-to"] in _NEWER_TARGETS or (
            isinstance(definition, dict) and not definition.keys() <= self._policy_keys
        )

    def _parameter(self, item: Item) -> None:
        vhost, component = self._vhost_of(item, "parameter"), text(item, "component", "parameter")
        parameter = name(item, "name", "parameter")
        where = f"({vhost}/{component}/{parameter})"
        if component == POLICY:
            raise DefinitionsInvalid(f"policies may not be set using this method {where}")
        value = item.get("value")
        if component == OPERATOR_POLICY:
            value = plain_object(value)
            if isinstance(value, dict) and "definition" in value:
                value = {**value, "definition": plain_object(value["definition"])}
        elif component == VHOST_LIMITS and value != []:
            value = plain_object(value)
        check_depth(value)
        problem = validate_parameter(component, parameter, value, self._plugins)
        if problem is not None:
            is_ours = component in (VHOST_LIMITS, OPERATOR_POLICY)
            raise (DefinitionsInvalid if is_ours else Unsupported)(
                f"Validation failed\n\n{problem}\n {where}"
            )
        section = self._found.limits if component == VHOST_LIMITS else self._found.parameters
        section.append(SetParameter(vhost, component, parameter, value))

    # --- what is in a vhost ---

    def _exchange(self, item: Item) -> None:
        vhost, exchange = self._vhost_of(item, "exchange"), text(item, "name", "exchange")
        if exchange == DEFAULT_EXCHANGE or exchange.startswith(RESERVED_PREFIX):
            self._found.skipped.append(("exchange", exchange))
            return
        exchange_type = item.get("type")
        if not isinstance(exchange_type, str) or exchange_type not in self._exchange_types:
            raise Unsupported(f"invalid exchange type '{exchange_type}': {shown(item)}")
        arguments = _arguments(item)
        try:
            check_exchange_arguments(exchange_type, arguments)
        except ProtocolError as error:
            raise Unsupported(f"{error.explanation}: {shown(item)}") from None
        self._found.exchanges.append(
            DeclareExchange(
                vhost,
                name(item, "name", "exchange"),
                exchange_type,
                durable=flag(item, "durable", "exchange"),
                auto_delete=flag(item, "auto_delete", "exchange"),
                internal=flag(item, "internal", "exchange", default=False),
                arguments=arguments,
            )
        )

    def _queue(self, item: Item) -> None:
        vhost, queue = self._vhost_of(item, "queue"), text(item, "name", "queue")
        if queue.startswith(RESERVED_PREFIX):
            self._found.skipped.append(("queue", queue))
            return
        durable, auto_delete = flag(item, "durable", "queue"), flag(item, "auto_delete", "queue")
        arguments = _arguments(item)
        try:
            queue_type = validate_queue_arguments(
                arguments, queue, vhost, durable, False, auto_delete, self._node
            )
        except ProtocolError as error:
            asked = plain_object(item.get("arguments") or {})
            asked_type = asked.get("x-queue-type") if isinstance(asked, dict) else None
            is_known = asked_type in (None, *get_args(QueueType))
            raise (DefinitionsInvalid if is_known else Unsupported)(error.explanation) from None
        self._found.queues.append(
            DeclareQueue(
                vhost,
                name(item, "name", "queue"),
                uid="",
                durable=durable,
                auto_delete=auto_delete,
                arguments=arguments,
                type=queue_type,
            )
        )

    def _binding(self, item: Item) -> None:
        vhost = self._vhost_of(item, "binding")
        source, destination, key = (
            text(item, each, "binding") for each in ("source", "destination", "routing_key")
        )
        kind = item.get("destination_type")
        if kind not in get_args(ResourceKind):
            raise DefinitionsInvalid(f"destination_type must be queue or exchange: {shown(item)}")
        if source != DEFAULT_EXCHANGE:
            self._found.bindings.append(
                Bind(vhost, source, cast(ResourceKind, kind), destination, key, _arguments(item))
            )

    def _vhost_of(self, item: Item, noun: str) -> str:
        return text(item, "vhost", noun) if self._only_vhost is None else self._only_vhost


_NEWER_TARGETS: Final = ("classic_queues", "quorum_queues", "streams")


def _arguments(item: Item) -> Table:
    """Return the arguments of an item. Null becomes a void, which RabbitMQ exports and cannot import."""
    try:
        return table_from_json(plain_object(item.get("arguments") or {}), allow_null=True)
    except TableInvalid as invalid:
        raise DefinitionsInvalid(f"{invalid}: {shown(item)}") from None
