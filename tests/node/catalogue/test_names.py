"""Names: rendering, reserved names, generated names (amqp-behaviour §0.1, §3.1, §3.3, §3.4)."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue import names
from node.catalogue.records import ResourceKind


def test_resources_are_rendered_as_in_section_0_1() -> None:
    assert names.resource("queue", "q", "/") == "queue 'q' in vhost '/'"
    assert names.missing("exchange", "x", "v") == "no exchange 'x' in vhost 'v'"


def test_not_found_is_a_404() -> None:
    error = names.not_found("queue", "q", "/")
    assert (error.code, error.explanation) == (ReplyCode.NOT_FOUND, "no queue 'q' in vhost '/'")


def test_the_empty_vhost_leaves_two_spaces() -> None:
    """§1.5: an empty vhost string is looked up literally."""
    assert names.missing_vhost("") == "vhost  not found"


def test_line_breaks_are_deleted() -> None:
    """§3.1: `a\\r\\nb` becomes `ab`; other white space stays."""
    assert names.strip_line_breaks("a\r\nb\tc d") == "ab\tc d"


def test_generated_names_are_url_safe_base64_without_padding() -> None:
    """§3.1: the prefix and 22 characters for 16 random bytes."""
    name = names.generated_name(names.GENERATED_QUEUE_PREFIX, b"\xff\xfe" * 8)
    assert name == "amq.gen-__7__v_-__7__v_-__7__g"
    assert names.generated_name(names.GENERATED_CONSUMER_TAG_PREFIX, bytes(16)) == "amq.ctag-" + "A" * 22


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_reserved_prefix_is_refused(kind: ResourceKind) -> None:
    """§3.1: creating a name starting `amq.`."""
    with pytest.raises(ProtocolError) as raised:
        names.check_not_reserved(kind, "amq.foo")
    assert raised.value.code is ReplyCode.ACCESS_REFUSED
    assert raised.value.explanation == f"{kind} name 'amq.foo' contains reserved prefix 'amq.*'"


def test_other_names_are_not_reserved() -> None:
    for name in ("amq", "amqp.foo", "AMQ.foo", "x amq.", ""):
        names.check_not_reserved("queue", name)


def test_default_exchange_is_off_limits() -> None:
    """§3.3 step 2, §3.4 row default, §3.14 row source or destination is ''."""
    names.check_not_default_exchange("x")
    with pytest.raises(ProtocolError) as raised:
        names.check_not_default_exchange("")
    assert raised.value.code is ReplyCode.ACCESS_REFUSED
    assert raised.value.explanation == "operation not permitted on the default exchange"


def test_system_exchanges_cannot_be_deleted() -> None:
    """§3.4 row name starts `amq.`, existing or not."""
    names.check_not_system_exchange("x", "/")
    with pytest.raises(ProtocolError) as raised:
        names.check_not_system_exchange("amq.nope", "/")
    assert raised.value.code is ReplyCode.ACCESS_REFUSED
    assert raised.value.explanation == "deletion of system exchange 'amq.nope' in vhost '/' not allowed"
