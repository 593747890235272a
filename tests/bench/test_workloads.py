"""The catalogue: what the topic workload expects must follow from its own bindings."""

import re

from bench.workloads import WORKLOADS, OneQueue, topic_bindings, topic_keys


def matches(pattern: str, key: str) -> bool:
    """A reference matcher for the patterns used here: `*` is one word, a leading `#.` any number of words."""
    body = re.escape(pattern.removeprefix("#.")).replace(r"\*", "[^.]*")
    return re.fullmatch((r"(.*\.)?" if pattern.startswith("#.") else "") + body, key) is not None


def test_topic_expectation() -> None:
    bindings = topic_bindings()
    assert len(bindings) == len(set(bindings)) == 1000
    keys = list(topic_keys())
    assert len({key for key, _ in keys}) == 8000
    for key, queues in keys[::97]:  # 97: a prime, so that regions, services and events all turn
        assert queues == {queue for queue, pattern in bindings if matches(pattern, key)}


def test_keys_of_a_turn_do_not_break_between_cycles() -> None:
    messages = OneQueue(routing_keys=["a", "b", "c"]).messages("q")
    assert len(messages) % 3 == 0
    assert [message.routing_key for message in messages[:4]] == ["a", "b", "c", "a"]


def test_names_are_unique() -> None:
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)
