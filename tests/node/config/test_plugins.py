"""The file of enabled plug-ins (management §3.2)."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.config import plugins as config_plugins


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"[rabbitmq_management,rabbitmq_prometheus].", ("rabbitmq_management", "rabbitmq_prometheus")),
        (b"[rabbitmq_management].\n", ("rabbitmq_management",)),
        (b"%% by hand\n[ rabbitmq_management , % one\n 'b-c' ] .", ("rabbitmq_management", "b-c")),
        (b"[a,b,a].", ("a", "b")),
        (b"[].", ()),
        (b"[ ].\n", ()),
        (b"", ()),
        (b"% nothing\n", ()),
    ],
)  # fmt: skip
def test_what_is_enabled(content: bytes, names: tuple[str, ...]) -> None:
    assert config_plugins.parse(content) == names


@pytest.mark.parametrize(
    "content",
    [
        b"[a,b]",
        b"a.",
        b"[a,,b].",
        b"[a b].",
        b"[Upper].",
        b"[a]. [b].",
        b"\xff",
        b"[" + b"a," * 40_000 + b"a].",
    ],
)
def test_what_is_no_list_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="allowed"):
        config_plugins.parse(content)


@given(st.lists(st.from_regex(r"[a-z][a-z0-9_.@-]{0,30}", fullmatch=True), unique=True, max_size=20))
def test_what_is_written_is_read(names: list[str]) -> None:
    assert config_plugins.parse(config_plugins.render(names)) == tuple(names)


@given(st.binary(max_size=60))
def test_any_content_gives_names_or_a_value_error(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        config_plugins.parse(content)


def test_what_is_needed_comes_along() -> None:
    assert config_plugins.with_needed(["rabbitmq_management", "rabbitmq_top"]) == [
        "rabbitmq_management",
        "rabbitmq_management_agent",
        "rabbitmq_web_dispatch",
    ]
    assert not config_plugins.is_on("rabbitmq_prometheus", ["rabbitmq_management"])
    assert config_plugins.is_on("rabbitmq_prometheus", None)
    assert not config_plugins.is_on("rabbitmq_management", ())
