"""This module says whether a topic matches one filter, as a session of MQTT has it."""

from node.mqtt.filter_tree import FilterTree


def matches(filter_: str, topic: str) -> bool:
    """True if a topic matches a valid filter, which is not of a shared subscription."""
    tree = FilterTree()
    tree.put("name", filter_)
    found = tree.match(topic)
    assert found in ([], ["name"])
    return bool(found)
