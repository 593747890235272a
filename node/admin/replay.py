"""Dead letters that go back to the queues in which they died, in the name of a user.

    get ─► the newest entry of x-death ─► publish to that queue, mandatory, with a confirm ─► ack

A message leaves the queue of dead letters only when the other queue has confirmed it; after a crash in between it may
be in both. It keeps its properties and headers, `x-death` too, but for CC and BCC, which would route it to further
queues, and a `user_id` that is another user's. Messages that are not chosen go back to their places at the end.
Source: docs/dead_letters.md, "Replay".
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from node.admin.direct_client import DirectClient, Got, Outcome
from node.amqp.field_table import Table
from node.amqp.methods import BasicAck
from node.amqp.properties import Properties

REPLAYED_MAX: Final = 5000
"""The most messages that one request looks at: all of them are with its client meanwhile."""

REPLAYED_BYTES_MAX: Final = 32 * 1024 * 1024
"""The most bytes of bodies that one request takes out; a single one may be larger."""

REPLAY_S: Final = 40.0
"""The longest time that a request with a rate goes on; the next one continues."""

_DEATHS: Final = "x-death"
_ROUTING_HEADERS: Final = ("CC", "BCC")


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of the dead letters that are to be replayed. None: any.

    reason, queue: of the newest death.   header, value: a header and its text.
    """

    reason: str | None = None
    queue: str | None = None
    header: str | None = None
    value: str | None = None

    def takes(self, headers: Table) -> bool:
        """Return True if a message with these headers is a dead letter that is chosen."""
        death = newest_death(headers)
        if death is None:
            return False
        if self.header is not None:
            found = headers.get(self.header)
            if found is None or (self.value is not None and _text(found.value) != self.value):
                return False
        return self.reason in (None, death.reason) and self.queue in (None, death.queue)


@dataclass(frozen=True, slots=True)
class NewestDeath:
    """Where a message died last, and why."""

    queue: str
    reason: str


@dataclass(slots=True)
class Replayed:
    """The result of a replay.

    looked_at: messages.   replayed: those that went back, by queue.   not_chosen: those that the choice leaves, or that
        are no dead letters.   failed: those whose queue is gone or refused them.
    is_empty: there was no further message.
    """

    looked_at: int = 0
    replayed: Counter[str] = field(default_factory=Counter)
    not_chosen: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    is_empty: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it for the HTTP API and the control socket."""
        return {
            "looked_at": self.looked_at,
            "replayed": self.replayed.total(),
            "to": dict(self.replayed),
            "not_chosen": self.not_chosen,
            "failed": dict(self.failed),
            "is_empty": self.is_empty,
        }


def newest_death(headers: Table) -> NewestDeath | None:
    """Return the newest entry of x-death; None: the message is no dead letter."""
    deaths = headers.get(_DEATHS)
    if deaths is None or not isinstance(deaths.value, list) or not deaths.value:
        return None
    entry = deaths.value[0].value
    if not isinstance(entry, dict):
        return None
    queue, reason = (entry[name].value if name in entry else None for name in ("queue", "reason"))
    if not isinstance(queue, bytes) or not isinstance(reason, bytes):
        return None
    return NewestDeath(_text(queue), _text(reason))


async def replay(
    client: DirectClient,
    user: str,
    source: str,
    choice: Choice,
    *,
    count: int,
    rate: float | None = None,
    clock: Callable[[], float],
) -> Replayed:
    """Replay up to `count` messages from the head of a queue.

    rate: messages a second, None: as fast as it goes; the request ends after `REPLAY_S`.
    Raises: ProtocolError for what the broker refuses, DirectTimeout.
    """
    result = Replayed()
    size, begun = 0, clock()
    while result.replayed.total() < count and result.looked_at < REPLAYED_MAX and size < REPLAYED_BYTES_MAX:
        if rate is not None and result.replayed.total():
            due = begun + result.replayed.total() / rate
            if due - begun > REPLAY_S:
                break
            await asyncio.sleep(max(0.0, due - clock()))
        got = await client.get(source, no_ack=False)
        if got is None:
            result.is_empty = True
            break
        size += len(got.body)
        result.looked_at += 1
        headers = got.properties.headers or {}
        death = newest_death(headers)
        if death is None or not choice.takes(headers):
            result.not_chosen += 1
            continue
        outcome = await client.publish("", death.queue, _properties(got, user), got.body)
        if outcome is Outcome.ROUTED:
            client.send(BasicAck(got.delivery_tag))
            result.replayed[death.queue] += 1
        else:
            result.failed[death.queue] += 1
    return result


def _properties(got: Got, user: str) -> Properties:
    """Return the properties of the message that goes back."""
    properties = got.properties
    headers = dict(properties.headers or {})
    for name in _ROUTING_HEADERS:
        headers.pop(name, None)
    properties.headers = headers
    if properties.user_id != user:
        properties.user_id = None
    return properties


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
