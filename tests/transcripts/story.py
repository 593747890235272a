"""Stories of the protocol: what clients say and every answer, as text that a reviewer can read.

    # Comments and empty lines stay.
    client 1 logs in                                       to the vhost /, with channel 1 open
    client 1 queue.declare queue=q                         a method, on channel 1
    client 1 on 2 basic.get queue=q                        … on channel 2
    client 1 basic.publish routing_key=q body=hi &         & sends it in one read with the next line
    wait 2.5                                               seconds go by
    policy limit "^q" {max-length=2}                       an operator sets a policy
        client 1 queue.declare-ok queue=q                  indented: what came of the line before

Fields that have their default are not shown. Names of direct replies are long and random: a story calls them
REPLY-1, REPLY-2 in the order in which they turn up. Write a story without the indented lines and let

    python -m tests.transcripts.story --rewrite

fill them in: then read the difference.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from node.amqp.constants import PROTOCOL_HEADER
from node.amqp.field_table import Field, FieldValue, Table, array, boolean, long, longstr, table
from node.amqp.frames import HEARTBEAT, content_frames, method_frame
from node.amqp.methods import METHODS, BasicPublish, ChannelOpen, ChannelOpenOk, FieldType
from node.amqp.properties import Properties, content_header
from node.catalogue.commands import SetPolicy
from tests.kit.world import Client, Received, World
from tests.transcripts.script import INDENT, main, retold

STORIES: Final = sorted(Path(__file__).parent.glob("*.txt"))

_BY_NAME: Final = {method.name: method for method in METHODS.values()}
_PROPERTIES: Final = {item.name: item.default for item in fields(Properties)}
_WORD: Final = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+')
_PLAIN: Final = re.compile(r"[\w.#*/:+-][\w.#*/:+-]*")
_REPLY_NAME: Final = re.compile(r"amq\.rabbitmq\.reply-to\.[A-Za-z0-9+/=.]+")


class Story:
    """A world, and the clients of the story by number."""

    def __init__(self) -> None:
        self.world = World()
        self.clients: dict[int, Client] = {}
        self._together = b""
        self._reply_names: list[str] = []

    def tell(self, line: str) -> Iterator[str]:
        """Do what the line says; what came of it."""
        for number, name in enumerate(self._reply_names, 1):
            line = line.replace(f"REPLY-{number}", json.dumps(name))
        words = _WORD.findall(line)
        is_last = words[-1] != "&"
        match words if is_last else words[:-1]:
            case ["wait", seconds]:
                self.world.advance(float(seconds))
            case ["policy", name, pattern, definition]:
                parsed = {key: item.value for key, item in table_of(definition).items()}
                plain: Any = {k: v.decode() if isinstance(v, bytes) else v for k, v in parsed.items()}
                self.world.submit(SetPolicy("/", name, json.loads(pattern), plain))
            case ["client", number, "connects"]:
                self.clients[int(number)] = self.world.connect()
            case ["client", number, "logs", "in", *capabilities]:
                self.clients[int(number)] = self._logged_in(capabilities)
            case ["client", number, "goes", "away"]:
                self.clients[int(number)].lose()
            case ["client", number, "on", channel, *rest]:
                self._send(self.clients[int(number)], int(channel), rest, is_last)
            case ["client", number, *rest]:
                self._send(self.clients[int(number)], 1, rest, is_last)
            case _:
                raise ValueError(f"not understood: {line}")
        if is_last:
            yield from self._answers()

    def _logged_in(self, capabilities: list[str]) -> Client:
        client = self.world.connect()
        client.shake_hands(capabilities={name: boolean(True) for name in capabilities})
        assert client.ask(1, ChannelOpen()) == ChannelOpenOk()
        return client

    def _send(self, client: Client, channel: int, words: list[str], is_last: bool) -> None:
        self._together += frames_of(client, channel, words)
        if is_last:
            data, self._together = self._together, b""
            client.feed(data)

    def _answers(self) -> Iterator[str]:
        self.world.settle()
        for number, client in self.clients.items():
            for item in client.received():
                yield f"{INDENT}client {number} {_REPLY_NAME.sub(self._alias, shown(item))}"
            if client.is_reset:
                yield f"{INDENT}client {number} is disconnected"
        self.clients = {number: client for number, client in self.clients.items() if not client.is_reset}
        entries = self.world.diary.entries
        yield from (f"{INDENT}({entry})" for entry in entries if entry.startswith("cycled"))
        entries.clear()

    def _alias(self, name: re.Match[str]) -> str:
        if name[0] not in self._reply_names:
            self._reply_names.append(name[0])
        return f"REPLY-{self._reply_names.index(name[0]) + 1}"


def play(text: str) -> str:
    """Return the story with the present outcome of each line."""
    return retold(text, Story().tell)


# --- reading ----------------------------------------------------------------------------------------------


def frames_of(client: Client, channel: int, words: list[str]) -> bytes:
    """The frames of a line."""
    name, *assignments = words
    if name == "protocol-header":
        return PROTOCOL_HEADER
    if name == "heartbeat":
        return HEARTBEAT
    cls = _BY_NAME[name]
    kinds = {key: hint.__metadata__[0] for key, hint in cls.__annotations__.items()}
    values: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    body = b""
    for assignment in assignments:
        key, _, raw = assignment.partition("=")
        if key == "body":
            body = _text(raw).encode()
        elif key in kinds:
            values[key] = _value(kinds[key], raw)
        elif key == "headers":
            properties[key] = table_of(raw)
        else:
            assert key in _PROPERTIES, f"{name} has no {key}"
            properties[key] = int(raw) if key in ("delivery_mode", "priority", "timestamp") else _text(raw)
    # A story is no place for channel 1 of the connection class.
    data = method_frame(0 if cls.class_id == 10 else channel, cls(**values))
    if cls is BasicPublish:
        header = content_header(len(body), Properties(**properties))
        data += content_frames(channel, header, body, client.connection.frame_max_bytes)
    return data


def _value(kind: FieldType, raw: str) -> object:
    match kind:
        case FieldType.BIT:
            return raw != "false"  # the bare name sets it
        case FieldType.SHORTSTR:
            return _text(raw)
        case FieldType.LONGSTR:
            return _text(raw).encode()
        case FieldType.TABLE:
            return table_of(raw)
    return int(raw)


def _text(raw: str) -> str:
    return str(json.loads(raw)) if raw.startswith('"') else raw


def table_of(raw: str) -> Table:
    """`{name=value,…}`: numbers, true, false, texts, [arrays] and {tables}."""
    value, rest = _field(raw)
    assert not rest, raw
    assert isinstance(value.value, dict), raw
    return value.value


def _field(raw: str) -> tuple[Field, str]:
    """The field at the start of a text, and what follows it."""
    if raw[0] in "{[":
        entries, is_table, raw = [], raw[0] == "{", raw[1:]
        while raw[0] not in "}]":
            raw = raw.removeprefix(",")
            key = ""
            if is_table:
                key, _, raw = raw.partition("=")
            entry, raw = _field(raw)
            entries.append((key, entry))
        return table(dict(entries)) if is_table else array([entry for _, entry in entries]), raw[1:]
    if raw[0] == '"':
        text, end = json.JSONDecoder().raw_decode(raw)
        return longstr(text), raw[end:]
    found = _PLAIN.match(raw)
    assert found is not None, raw
    word, rest = found[0], raw[found.end() :]
    if word in ("true", "false"):
        return boolean(word == "true"), rest
    return (long(int(word)) if re.fullmatch(r"-?\d+", word) else longstr(word)), rest


# --- showing ----------------------------------------------------------------------------------------------


def shown(item: Received) -> str:
    """A line for what a client got."""
    method = item.method
    if method is None:
        return "heartbeat"
    words = [method.name] if item.channel in (0, 1) else [f"on {item.channel}", method.name]
    default = type(method)()
    for key in method.__annotations__:
        words += _shown_field(key, getattr(method, key), getattr(default, key))
    if item.properties is not None:
        for key, absent in _PROPERTIES.items():
            words += _shown_field(key, getattr(item.properties, key), absent)
        words += _shown_field("body", item.body, b"")
    return " ".join(words)


def _shown_field(key: str, value: object, default: object) -> Iterator[str]:
    if key == "server_properties":
        yield f"{key}=…"  # not this story's business
    elif value is True:
        yield key
    elif value != default:
        yield f"{key}={_shown(value)}"


def _shown(value: "FieldValue | object") -> str:
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return _shown(value.decode("utf-8", "backslashreplace"))
        case str():
            return (
                value
                if _PLAIN.fullmatch(value) or _REPLY_NAME.fullmatch(value)
                else json.dumps(value, ensure_ascii=False)
            )
        case dict():
            return "{" + ",".join(f"{key}={_shown(entry.value)}" for key, entry in value.items()) + "}"
        case list():
            return "[" + ",".join(_shown(entry.value) for entry in value) + "]"
    return str(value)


if __name__ == "__main__":
    main(STORIES, play)
