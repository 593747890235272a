"""The catalogue: what the topic workload expects must follow from its own bindings."""

import re

from bench.flow import FlowOutcome
from bench.servers import Fluffle, Meter
from bench.workloads import OneQueue, Outcome, joint_outcome, topic_bindings, topic_keys


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


def test_joint_outcome_counts_messages_once() -> None:
    """The costs of two flows of the same messages are added; the messages aren't."""
    meters = [Meter(Fluffle()), Meter(Fluffle())]
    for meter, seconds in zip(meters, (1.0, 2.0), strict=True):
        meter.elapsed_s, meter.server_cpu_s, meter.generator_cpu_s = seconds, seconds / 2, seconds / 4
    flows = [FlowOutcome(10, 0, 0.5, meters[0]), FlowOutcome(10, 10, 1.5, meters[1])]
    assert joint_outcome(flows, 10, fill=20.0) == Outcome({"fill": 20.0}, 10, 3.0, 1.5, 0.75)
