"""The handshake of a stream: two nodes make sure of each other before anything else is read.

    Opener     greet ─► receive_greeting ─► receive_proof ─► (admit) ─► accepted
    Answerer   receive_greeting ─► receive_proof ─► (admit) ─► proof ─► receive_accepted

A proof is an HMAC by the cluster's secret over both greetings as they were on the wire. These hold a nonce of either
side, both names and node ids, and the kind of the stream. The side that proves is part of the proof too, so it is of
no use on any other stream, nor sent back. The opener proves first: a stranger that only connects learns nothing to
guess the secret by. With certificates TLS has proved the names already.

Source: reliability §5.4, §6 "Inter-node".
"""

import hashlib
import hmac
from collections.abc import Set
from enum import StrEnum
from typing import Final

from google.protobuf.message import DecodeError

from cluster.transport.frames import VERSION as PROTOCOL
from cluster.transport.interface import Hello, Identity
from cluster.transport.peer_pb2 import Greeting, Handshake
from node.version import NODE_MARK, VERSION

NONCE_BYTES: Final = 32

REFUSAL_CHARACTERS_MAX: Final = 1000
"""The most characters that are shown of the other side's reason."""

_STEP_BYTES_MAX: Final = 16 * 1024
_NAME_CHARACTERS_MAX: Final = 255


class Kind(StrEnum):
    """The purpose of a stream."""

    CONTROL = "control"
    DATA = "data"
    CALL = "call"


class HandshakeFailed(Exception):
    """The stream must end; the text is for the operator.

    is_theirs: the other side refused; otherwise this side does, and tells it why.   name: the other side's, as far
    as it has proved it.
    """

    def __init__(self, text: str, *, is_theirs: bool = False) -> None:
        super().__init__(text)
        self.is_theirs = is_theirs
        self.name = ""


def refusal(text: str) -> bytes:
    """Encode the message that says why a stream ends."""
    return Handshake(refusal=text[:REFUSAL_CHARACTERS_MAX]).SerializeToString()


class _Side:
    """The state and the checks of both sides."""

    def __init__(self, identity: Identity, secret: bytes, nonce: bytes) -> None:
        assert len(nonce) == NONCE_BYTES
        self._identity = identity
        self._secret = secret
        self._nonce = nonce
        self._opening = b""  # the greetings as they are on the wire
        self._answer = b""
        self._hello: Hello | None = None

    @property
    def hello(self) -> Hello:
        """The other side's name, ids, incarnation and version."""
        assert self._hello is not None
        return self._hello

    def _greeting(self, kind: Kind, to: str) -> bytes:
        greeting = Greeting(
            protocol=PROTOCOL,
            kind=kind,
            name=self._identity.name,
            node_id=self._identity.node_id,
            cluster_id=self._identity.cluster_id,
            incarnation=self._identity.incarnation,
            version=VERSION,
            to=to,
            nonce=self._nonce,
        )
        return Handshake(greeting=greeting).SerializeToString()

    def _take_greeting(self, message: bytes, kind: Kind, names: Set[str] | None) -> None:
        """Check a greeting.   names: those that the certificate vouches for; None without certificates."""
        greeting = _step(message, "greeting").greeting
        if greeting.protocol != PROTOCOL:
            raise HandshakeFailed(
                f"the nodes speak different protocols, {greeting.protocol} and {PROTOCOL} (version {VERSION})"
            )
        for text in (greeting.name, greeting.node_id, greeting.cluster_id, greeting.version, greeting.to):
            if len(text) > _NAME_CHARACTERS_MAX or not text.isprintable():
                raise HandshakeFailed("a greeting with an invalid name")
        if not greeting.name or not greeting.node_id:
            raise HandshakeFailed("a greeting without a name")
        if greeting.kind != kind or len(greeting.nonce) != NONCE_BYTES or greeting.nonce == self._nonce:
            raise HandshakeFailed("a greeting that is not for this stream")
        if greeting.to and greeting.to != self._identity.name:
            raise HandshakeFailed(f"this is node '{self._identity.name}', not '{greeting.to}'")
        if names is not None and NODE_MARK not in names:
            raise HandshakeFailed(
                f"the certificate of '{greeting.name}' is no node's: it lacks the URI {NODE_MARK} among its "
                "alternative names, which `fluffle certs` sets"
            )
        if names is not None and greeting.name not in names:
            others = ", ".join(sorted(names - {NODE_MARK})) or "nobody"
            raise HandshakeFailed(f"the certificate is not for node '{greeting.name}' but for {others}")
        if greeting.node_id == self._identity.node_id:
            raise HandshakeFailed("this is the same node, or one with a copy of its data directory")
        if greeting.name == self._identity.name:
            raise HandshakeFailed(f"this node is called '{greeting.name}' too")
        self._hello = Hello(
            greeting.name,
            greeting.node_id,
            greeting.cluster_id,
            greeting.incarnation,
            greeting.version,
            kind is Kind.CALL,
        )

    def _proof(self, side: bytes) -> bytes:
        if not self._secret:
            return b""
        proof = hmac.new(self._secret, digestmod=hashlib.sha256)
        for part in (b"fluffle peer", side, self._opening, self._answer):
            proof.update(len(part).to_bytes(4, "big"))
            proof.update(part)
        return proof.digest()

    def _check_proof(self, message: bytes, side: bytes) -> None:
        given = _step(message, "proof").proof
        if hmac.compare_digest(given, self._proof(side)):
            return
        if not given:
            raise HandshakeFailed("the nodes have different cluster secrets: one of them has none")
        raise HandshakeFailed("the nodes have different cluster secrets")


class Opener(_Side):
    """The side that opens a stream.   to: the name that the other side must have; empty when it isn't known.

    names: those that the other side's certificate vouches for; None without one.
    """

    def __init__(
        self,
        identity: Identity,
        kind: Kind,
        to: str,
        secret: bytes,
        nonce: bytes,
        names: Set[str] | None = None,
    ) -> None:
        super().__init__(identity, secret, nonce)
        self._kind = kind
        self._to = to
        self._names = names
        self._opening = self._greeting(kind, to)

    def greet(self) -> bytes:
        """Return the first message."""
        return self._opening

    def receive_greeting(self, message: bytes) -> bytes:
        """Take the other side's greeting and return the proof. Raises: HandshakeFailed."""
        self._take_greeting(message, self._kind, self._names)
        if self._to and self.hello.name != self._to:
            raise HandshakeFailed(f"it is node '{self.hello.name}', not '{self._to}'")
        self._answer = message
        return Handshake(proof=self._proof(b"opener")).SerializeToString()

    def receive_proof(self, message: bytes) -> Hello:
        """Check the other side's proof, and return its `Hello`. Raises: HandshakeFailed."""
        self._check_proof(message, b"answerer")
        return self.hello

    def accepted(self) -> bytes:
        """Return the last message."""
        return Handshake(accepted=True).SerializeToString()


class Answerer(_Side):
    """The side that is called.   names: those that the caller's certificate vouches for; None without one."""

    def __init__(
        self, identity: Identity, kind: Kind, names: Set[str] | None, secret: bytes, nonce: bytes
    ) -> None:
        super().__init__(identity, secret, nonce)
        self._kind = kind
        self._names = names

    def receive_greeting(self, message: bytes) -> bytes:
        """Take the opener's greeting and return this side's. Raises: HandshakeFailed."""
        self._take_greeting(message, self._kind, self._names)
        self._opening = message
        self._answer = self._greeting(self._kind, self.hello.name)
        return self._answer

    def receive_proof(self, message: bytes) -> Hello:
        """Check the opener's proof, and return its `Hello`. Raises: HandshakeFailed."""
        self._check_proof(message, b"opener")
        return self.hello

    def proof(self) -> bytes:
        """Return the proof, for an opener that was admitted."""
        return Handshake(proof=self._proof(b"answerer")).SerializeToString()

    def receive_accepted(self, message: bytes) -> None:
        """Check the last message. Raises: HandshakeFailed."""
        if not _step(message, "accepted").accepted:
            raise HandshakeFailed("the handshake was not accepted")


def _step(message: bytes, expected: str) -> Handshake:
    if len(message) > _STEP_BYTES_MAX:
        raise HandshakeFailed(f"a handshake of {len(message):,} bytes")
    try:
        handshake = Handshake.FromString(message)
    except DecodeError as error:
        raise HandshakeFailed("a handshake that cannot be read") from error
    step = handshake.WhichOneof("step")
    if step == "refusal":
        raise HandshakeFailed(handshake.refusal[:REFUSAL_CHARACTERS_MAX], is_theirs=True)
    if step != expected:
        raise HandshakeFailed(f"a handshake out of order: {step or 'nothing'} instead of {expected}")
    return handshake
