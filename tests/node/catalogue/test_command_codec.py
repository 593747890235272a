"""Commands as JSON: every one comes back as it was, and what is not known is refused in words."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.amqp.field_table import long
from node.catalogue.command_codec import CommandUnreadable, decode_command, encode_command
from node.catalogue.commands import (
    Bind,
    ChangeView,
    Command,
    DeclareQueue,
    DeleteVhost,
    PutUser,
    RestoreQueue,
    SetGlobalParameter,
    SetPolicy,
)
from node.catalogue.mirrors.views import AddMirror, OfferCopy, RingMember, View
from node.catalogue.records import QueueRecord, UserLimits
from tests.kit.commands_at_random import COMMANDS, any_of

DECLARE = DeclareQueue("/", "q", "00ff", durable=True, arguments={"x-max-length": long(5)})


@pytest.mark.parametrize("cls", COMMANDS, ids=lambda cls: cls.__name__)
def test_every_command_comes_back_as_it_was(cls: type[Command[object]]) -> None:
    """All classes, any values that their annotations allow; values keep their types."""

    @settings(max_examples=30, deadline=None)
    @given(any_of(cls))
    def round_trip(command: Command[object]) -> None:
        text = encode_command(command)
        assert b"\n" not in text
        assert repr(decode_command(text)) == repr(command)

    round_trip()


def test_there_are_commands_to_test() -> None:
    """The list is made by looking; it is not empty."""
    assert DeclareQueue in COMMANDS
    assert SetGlobalParameter in COMMANDS


def test_people_can_read_it() -> None:
    """Names as they are, all fields, tables in base64."""
    assert encode_command(DECLARE) == (
        b'{"command":"DeclareQueue","vhost":"/","name":"q","uid":"00ff","durable":true,"auto_delete":false,'
        b'"exclusive_owner":null,"arguments":"AAAAFgx4LW1heC1sZW5ndGhsAAAAAAAAAAU=","type":"classic","home":"",'
        b'"mirrors":[]}'
    )
    assert encode_command(DeleteVhost("Häsin")) == '{"command":"DeleteVhost","name":"Häsin"}'.encode()


def test_a_field_that_an_older_version_did_not_write_has_its_default() -> None:
    text = b'{"command":"PutUser","name":"u","password_hash":"h","hashing_algorithm":"a"}'
    assert decode_command(text) == PutUser("u", "h", "a")


def test_objects_within_objects() -> None:
    """A field may be missing in a nested object too, and an unknown one is refused."""
    text = b'{"command":"SetUserLimits","name":"u","limits":%s}'
    command = decode_command(text % b'{"max_channels":1}')
    assert command.limits == UserLimits(None, 1)  # type: ignore[attr-defined]
    with pytest.raises(CommandUnreadable, match=r"^UserLimits with the unknown field max_bunnies$"):
        decode_command(text % b'{"max_bunnies":1}')


def test_an_object_of_one_class_or_another_says_of_which() -> None:
    """The change of a view; an unknown one is refused, as a newer node may know more."""
    command = ChangeView("/", "q", "u", AddMirror("n1", 7))
    text = encode_command(command)
    assert text == (
        b'{"command":"ChangeView","vhost":"/","name":"q","uid":"u",'
        b'"change":{"kind":"AddMirror","node":"n1","incarnation":7}}'
    )
    assert decode_command(text) == command
    with pytest.raises(
        CommandUnreadable, match=r"^ChangeView.change must be an object of the kind AddMirror or "
    ):
        decode_command(text.replace(b"AddMirror", b"AddRabbit"))
    with pytest.raises(CommandUnreadable, match=r"^AddMirror without incarnation$"):
        decode_command(text.replace(b',"incarnation":7', b""))
    with pytest.raises(CommandUnreadable, match=r"^ChangeView.change must be an object of the kind "):
        decode_command(text.replace(b'{"kind":"AddMirror","node":"n1","incarnation":7}', b'"AddMirror"'))


def test_a_whole_queue_with_its_view() -> None:
    """As a snapshot for other nodes has it."""
    view = View(9, (RingMember(8, "n1", 3, "alive", 9),), 8, (8,), since=8, offers=(("n2", 4, 17),))
    command = RestoreQueue(QueueRecord("/", "q", "u", True, home="n1", view=view, ring_version=9))
    assert decode_command(encode_command(command)) == command
    text = encode_command(command)
    with pytest.raises(
        CommandUnreadable, match=r"^View.synced must be a list of whole numbers, not \[\"8\"\]$"
    ):
        decode_command(text.replace(b'"synced":[8]', b'"synced":["8"]'))
    with pytest.raises(CommandUnreadable, match=r"^View.offers must be a list of lists or objects, "):
        decode_command(text.replace(b'["n2",4,17]', b'["n2",4]'))


def test_a_view_and_an_offer_of_an_older_version() -> None:
    """Views and offers of an older version do not say whether a copy has all, and are read all the same."""
    view = View(9, (), 0, (), state="down", recoverable=("n2",), copies=(3,), offers=(("n2", 4, 17),))
    record = QueueRecord("/", "q", "u", True, home="n1", view=view, ring_version=9)
    text = encode_command(RestoreQueue(record))
    assert decode_command(text.replace(b',"judged":[],"kept":[],"common":0', b"")) == RestoreQueue(record)
    offer = ChangeView("/", "q", "u", OfferCopy("n2", 4, 17))
    assert decode_command(encode_command(offer).replace(b',"is_clean":null', b"")) == offer
    for is_clean in (True, False):
        clean = ChangeView("/", "q", "u", OfferCopy("n2", 4, 17, is_clean))
        assert decode_command(encode_command(clean)) == clean


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "no JSON: .*"),
        (b"\xff", "no JSON: .*"),
        (b"[" * 100_000, "no JSON: .*"),
        (b"[]", "no command"),
        (b'{"name":"q"}', "no command"),
        (b'{"command":["DeleteVhost"],"name":"q"}', "no command"),
        (b'{"command":"BreedRabbits"}', "unknown command BreedRabbits"),
        (b'{"command":"Command"}', "unknown command Command"),
        (b'{"command":"DeleteVhost"}', "DeleteVhost without name"),
        (
            b'{"command":"DeleteVhost","name":"v","force":true,"age":1}',
            "DeleteVhost with the unknown field age, force",
        ),
        (b'{"command":"DeleteVhost","naem":"v"}', "DeleteVhost with the unknown field naem"),
        (b'{"command":"DeleteVhost","name":7}', "DeleteVhost.name must be a text, not 7"),
    ],
)
def test_what_is_no_command(text: bytes, problem: str) -> None:
    """An error says what this version does not know, and where."""
    with pytest.raises(CommandUnreadable, match=f"^{problem}$"):
        decode_command(text)


@pytest.mark.parametrize(
    ("command", "field", "value", "due"),
    [
        (DECLARE, "durable", 1, "true or false, not 1"),
        (DECLARE, "exclusive_owner", 1, "a text or null, not 1"),
        (DECLARE, "type", "stream", 'one of classic, quorum, not "stream"'),
        (DECLARE, "type", {}, "one of classic, quorum, not {}"),
        (DECLARE, "arguments", {}, "a table in base64, not {}"),
        (DECLARE, "arguments", "*", 'a table in base64, not "*"'),
        (DECLARE, "arguments", "é", 'a table in base64, not "\\u00e9"'),
        (DECLARE, "arguments", "AAAA", 'a table in base64, not "AAAA"'),
        (DECLARE, "arguments", "AAAAAAAA", 'one table in base64, not "AAAAAAAA"'),
        (PutUser("u", "h", "a"), "tags", "administrator", 'a list of texts, not "administrator"'),
        (PutUser("u", "h", "a"), "tags", [1], "a list of texts, not [1]"),
        (PutUser("u", "h", "a"), "limits", 5, "an object, not 5"),
        (SetPolicy("/", "p", ".*", {}), "priority", True, "a whole number or a number, not true"),
        (SetPolicy("/", "p", ".*", {}), "definition", [], "an object, not []"),
        (Bind("/", "e", "queue", "q", ""), "destination_kind", None, "one of queue, exchange, not null"),
    ],
)
def test_values_of_another_type_are_refused(
    command: Command[object], field: str, value: object, due: str
) -> None:
    """True is no number, a string no list."""
    data = json.loads(encode_command(command))
    data[field] = value
    text = json.dumps(data).encode()
    with pytest.raises(CommandUnreadable) as caught:
        decode_command(text)
    assert str(caught.value) == f"{type(command).__name__}.{field} must be {due}"


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damage_never_raises_anything_else(data: st.DataObject) -> None:
    """Some bytes of a command replaced: another command, or CommandUnreadable."""
    text = bytearray(encode_command(DECLARE))
    at = data.draw(st.integers(0, len(text) - 1))
    text[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    try:
        command = decode_command(bytes(text))
    except CommandUnreadable:
        return
    assert decode_command(encode_command(command)) == command
