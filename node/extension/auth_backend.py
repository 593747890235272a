"""The interface of plug-ins that authenticate users and decide what they may do: an auth backend, and its questions.

A backend may have to ask another service, so its methods are coroutines. They run on the node's loop beside everything
else: they must await, and never block. The node gives each question a time limit, remembers answers for some seconds,
and takes an exception for a refusal.

    Login ─► log_in ─► Identity, or None       VhostAccess, ResourceAccess, TopicAccess ─► allows ─► True or False
    AuthStart ─► begin ─► AuthExchange        bytes of the client ─► answer ─► Challenge, Proof, or None
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from node.catalogue.records import ResourceKind
from node.extension.setting import Settings


@dataclass(frozen=True, slots=True)
class Login:
    """A client's claim to be a user.

    password: None where a certificate has proved the name.   mechanism: of SASL; empty over HTTP.
    host: the client's IP address.   is_tls: whether the connection is encrypted.
    """

    user: str
    password: bytes | None = field(repr=False)
    mechanism: str = ""
    host: str = ""
    is_tls: bool = False


class Identity(NamedTuple):
    """A user that a backend knows.   user: its name, which may differ from the claimed one.   tags: as RabbitMQ's."""

    user: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VhostAccess:
    """The question whether a user may open a vhost.   host: the client's IP address."""

    user: str
    tags: tuple[str, ...]
    vhost: str
    host: str = ""


@dataclass(frozen=True, slots=True)
class ResourceAccess:
    """The question whether a user may configure, write to or read from a queue or an exchange.

    name: that of the default exchange is `amq.default`.
    """

    user: str
    tags: tuple[str, ...]
    vhost: str
    kind: ResourceKind
    name: str
    permission: Literal["configure", "write", "read"]


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """The question whether a user may publish with a routing key to a topic exchange, or bind with it."""

    user: str
    tags: tuple[str, ...]
    vhost: str
    exchange: str
    permission: Literal["write", "read"]
    routing_key: str


@dataclass(frozen=True, slots=True)
class AuthStart:
    """A client's wish to prove who it is in several steps.   method: by what, such as `SCRAM-SHA-256`.

    host: the client's IP address.   is_tls: whether the connection is encrypted.
    """

    method: str
    host: str = ""
    is_tls: bool = False


class Challenge(NamedTuple):
    """The bytes that the client has to answer."""

    data: bytes


class Proof(NamedTuple):
    """The end of an authentication: the client is that user.   data: the last bytes for it."""

    identity: Identity
    data: bytes = b""


class AuthExchange(ABC):
    """One authentication of one client, step by step."""

    @abstractmethod
    async def answer(self, data: bytes) -> Challenge | Proof | None:
        """Take the client's next bytes, its first ones to begin with; None refuses the client."""


Question: TypeAlias = VhostAccess | ResourceAccess | TopicAccess


class AuthBackend(ABC):
    """A way to authenticate and authorise users; a plug-in derives its own from it.

    name: as in `auth_backends.1 = NAME` of the configuration.
    methods: the names of the methods of several steps that it offers, for clients of MQTT 5.0.
    There is one object on each node while the plug-in is enabled. It is asked several questions at a time.
    """

    name: ClassVar[str]
    methods: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: Settings) -> None:
        """Make the backend.   settings: those of the plug-in, by their keys."""
        self.settings = settings

    @abstractmethod
    async def log_in(self, login: Login) -> Identity | None:
        """Return the user if the claim is right; None refuses the login."""

    async def authorise(self, login: Login) -> Identity | None:
        """Return the user that another backend has authenticated, with its tags here; None refuses the login."""
        return await self.log_in(login)

    def begin(self, start: AuthStart) -> AuthExchange:
        """Return a new authentication by one of the methods."""
        raise NotImplementedError(f"{self.name} offers {start.method} and does not implement it")

    @abstractmethod
    async def allows(self, question: Question) -> bool:
        """True if the user may do that."""

    async def close(self) -> None:
        """Release what the backend holds: the plug-in was disabled, or the node stops."""
        return
