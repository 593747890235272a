"""The handshake: who gets in, who doesn't and what either side reads about it (reliability §6 "Inter-node")."""

import dataclasses
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.transport.handshake import Answerer, HandshakeFailed, Kind, Opener, refusal
from cluster.transport.interface import Hello, Identity
from cluster.transport.peer_pb2 import Handshake
from node.version import NODE_MARK, VERSION

N1 = Identity("rabbit@n1", "id1", "cluster", 4)
N2 = Identity("rabbit@n2", "id2", "cluster", 7)
SECRET = b"a secret"


def opener(
    identity: Identity = N1,
    to: str = "rabbit@n2",
    secret: bytes = SECRET,
    kind: Kind = Kind.CONTROL,
    nonce: bytes = b"o",
) -> Opener:
    return Opener(identity, kind, to, secret, nonce * 32)


def answerer(
    identity: Identity = N2,
    names: Collection[str] | None = None,
    secret: bytes = SECRET,
    kind: Kind = Kind.CONTROL,
    nonce: bytes = b"a",
) -> Answerer:
    return Answerer(identity, kind, names, secret, nonce * 32)


def shake(one: Opener, other: Answerer) -> tuple[Hello, Hello]:
    proof = one.receive_greeting(other.receive_greeting(one.greet()))
    of_opener = other.receive_proof(proof)
    of_answerer = one.receive_proof(other.proof())
    other.receive_accepted(one.accepted())
    return of_opener, of_answerer


@pytest.mark.parametrize("secret", [SECRET, b""])
@pytest.mark.parametrize("kind", list(Kind))
def test_both_learn_who_the_other_is(secret: bytes, kind: Kind) -> None:
    is_call = kind is Kind.CALL
    assert shake(opener(secret=secret, kind=kind), answerer(secret=secret, kind=kind)) == (
        Hello("rabbit@n1", "id1", "cluster", 4, VERSION, is_call),
        Hello("rabbit@n2", "id2", "cluster", 7, VERSION, is_call),
    )


def test_an_opener_that_knows_no_name() -> None:
    assert shake(opener(to=""), answerer())[1].name == "rabbit@n2"


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (opener(secret=b"x"), answerer(), "the nodes have different cluster secrets$"),
        (opener(secret=b""), answerer(), "one of them has none"),
        (opener(), answerer(secret=b""), "different cluster secrets"),
        (opener(to="rabbit@n3"), answerer(), "this is node 'rabbit@n2', not 'rabbit@n3'"),
        (
            opener(),
            answerer(names={"rabbit@n3", "n3", NODE_MARK}),
            "certificate is not for node 'rabbit@n1' but for n3, rabbit@n3",
        ),
        (opener(), answerer(names={NODE_MARK}), "but for nobody"),
        (opener(), answerer(names={"rabbit@n1"}), "is no node's: it lacks the URI urn:fluffle:node"),
        (
            opener(),
            answerer(identity=dataclasses.replace(N2, node_id="id1")),
            "the same node, or one with a copy",
        ),
        (
            opener(to=""),
            answerer(identity=dataclasses.replace(N2, name="rabbit@n1")),
            "is called 'rabbit@n1' too",
        ),
        (opener(kind=Kind.DATA), answerer(), "not for this stream"),
        (opener(nonce=b"a"), answerer(nonce=b"a"), "not for this stream"),
        (opener(identity=dataclasses.replace(N1, name="a\nb")), answerer(), "an invalid name"),
        (opener(identity=dataclasses.replace(N1, name="n" * 256)), answerer(), "an invalid name"),
        (opener(identity=dataclasses.replace(N1, name="")), answerer(), "without a name"),
    ],
)
def test_who_is_refused(one: Opener, other: Answerer, text: str) -> None:
    with pytest.raises(HandshakeFailed, match=text):
        shake(one, other)


def test_an_answerer_that_does_not_know_the_secret() -> None:
    """An answerer without the secret cannot pretend to have it: the opener checks too."""
    one, other = opener(), answerer(secret=b"guess")
    one.receive_greeting(other.receive_greeting(one.greet()))
    with pytest.raises(HandshakeFailed, match="different cluster secrets"):
        one.receive_proof(other.proof())


def test_an_answerer_with_another_name() -> None:
    one = opener()
    other = answerer(identity=dataclasses.replace(N2, name="rabbit@n3"))
    greeting = other.receive_greeting(opener(to="").greet())
    with pytest.raises(HandshakeFailed, match="it is node 'rabbit@n3', not 'rabbit@n2'"):
        one.receive_greeting(greeting)


def test_a_proof_cannot_be_sent_back() -> None:
    """Reflection: an opener's proof is none of an answerer."""
    one, other = opener(), answerer()
    proof = one.receive_greeting(other.receive_greeting(one.greet()))
    with pytest.raises(HandshakeFailed, match="different cluster secrets"):
        one.receive_proof(proof)


@pytest.mark.parametrize(
    "change",
    [
        {"nonce": b"b"},
        {"identity": dataclasses.replace(N2, node_id="id3")},
        {"identity": dataclasses.replace(N2, name="rabbit@n3")},
        {"identity": dataclasses.replace(N2, incarnation=8)},
    ],
)
def test_a_proof_is_of_no_use_elsewhere(change: dict[str, object]) -> None:
    """Relayed to another node, or replayed to the same: it is bound to nonces, names and ids of both."""
    one, other = opener(to=""), answerer()
    proof = one.receive_greeting(other.receive_greeting(one.greet()))
    another = answerer(**change)  # type: ignore[arg-type]
    another.receive_greeting(one.greet())
    with pytest.raises(HandshakeFailed, match="different cluster secrets"):
        another.receive_proof(proof)
    other.receive_proof(proof)


def test_the_secret_is_never_sent() -> None:
    one, other = opener(), answerer()
    sent = [one.greet(), other.receive_greeting(one.greet())]
    sent += [one.receive_greeting(sent[-1])]
    other.receive_proof(sent[-1])
    assert all(SECRET not in message for message in (*sent, other.proof(), one.accepted()))


def test_a_refusal_is_read_at_every_step() -> None:
    one, other = opener(), answerer()
    no = refusal("no majority\n" + "x" * 10_000)
    for read in (other.receive_greeting, one.receive_greeting, other.receive_accepted):
        with pytest.raises(HandshakeFailed, match="no majority") as failed:
            read(no)
        assert failed.value.is_theirs
        assert len(str(failed.value)) <= 1000


def test_steps_out_of_order() -> None:
    for message in (Handshake(accepted=True), Handshake(proof=b""), Handshake()):
        with pytest.raises(HandshakeFailed, match="out of order"):
            answerer().receive_greeting(message.SerializeToString())
    with pytest.raises(HandshakeFailed, match="not accepted"):
        answerer().receive_accepted(Handshake(accepted=False).SerializeToString())


def test_another_protocol() -> None:
    handshake = Handshake.FromString(opener().greet())
    handshake.greeting.protocol = 1
    with pytest.raises(HandshakeFailed, match="different protocols, 1 and 3"):
        answerer().receive_greeting(handshake.SerializeToString())


def test_a_big_handshake_is_not_read() -> None:
    with pytest.raises(HandshakeFailed, match="a handshake of 20,000 bytes"):
        answerer().receive_greeting(bytes(20_000))


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused(message: bytes) -> None:
    """reliability §5.4: garbage. Nothing but a refusal comes of it."""
    for read in (answerer().receive_greeting, opener().receive_greeting):
        with pytest.raises(HandshakeFailed):
            read(message)
