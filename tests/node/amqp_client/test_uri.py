"""AMQP URIs, as RabbitMQ's Erlang client reads them."""

import pytest

from node.amqp_client.uri import (
    AmqpUri,
    InvalidUri,
    TlsOptions,
    parse,
    without_credentials,
    without_password,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amqp://", {"host": None, "vhost": "/"}),
        ("amqp:///v", {"host": None, "vhost": "v"}),
        ("amqp://host", {"host": "host", "port": 5672}),
        ("AMQP://host/", {"host": "host", "vhost": ""}),
        ("amqps://host", {"port": 5671, "tls": TlsOptions()}),
        (
            "amqp://u:p@host:10000/vhost",
            {"user": "u", "password": "p", "host": "host", "port": 10000, "vhost": "vhost"},
        ),
        (
            "amqp://user%61:%61pass@ho%61st:10000/v%2fhost",
            {"user": "usera", "password": "apass", "host": "hoast", "port": 10000, "vhost": "v/host"},
        ),
        ("amqp://u@host", {"user": "u", "password": None}),
        ("amqp://u:@host", {"user": "u", "password": ""}),
        ("amqp://[::1]:5673/%2f", {"host": "::1", "port": 5673, "vhost": "/"}),
        ("amqp://h?heartbeat=5&connection_timeout=1500", {"heartbeat_s": 5, "connection_timeout_s": 1.5}),
        ("amqp://h?channel_max=7&frame_max=4096", {"channel_max": 7, "frame_max_bytes": 4096}),
        ("amqp://h?heartbeat=1&heartbeat=2&unknown=x", {"heartbeat_s": 1}),
        (
            "amqp://h?auth_mechanism=external&auth_mechanism=amqplain",
            {"mechanisms": ("EXTERNAL", "AMQPLAIN")},
        ),
        (
            "amqps://h?cacertfile=/a%20b&certfile=/c&keyfile=/k&verify=verify_peer&server_name_indication=n",
            {"tls": TlsOptions(True, "/a b", "/c", "/k", None, "n")},
        ),
        (
            "amqps://h?server_name_indication=disable&password=k",
            {"tls": TlsOptions(key_password="k", server_name="")},
        ),
    ],
)
def test_uris_are_read(text: str, expected: dict[str, object]) -> None:
    uri = parse(text)
    assert {name: getattr(uri, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unable_to_parse_uri"),
        ("host", "unable_to_parse_uri"),
        ("http://host", '{unexpected_uri_scheme,"http"}'),
        ("amqp://:5672", "port_requires_host"),
        ("amqp://h:65536", "{port_out_of_range,65536}"),
        ("amqp://h:0", "{port_out_of_range,0}"),
        ("amqp://h:x", "unable_to_parse_uri"),
        ("amqp://u:p@ss@h", "unable_to_parse_uri"),
        ("amqp://h/a/b", '{invalid_vhost,"a/b"}'),
        ("amqp://h/%2", "unterminated_entity"),
        ("amqp://h/%zz", "invalid_entitiy"),
        ("amqp://h?heartbeat=x", '{not_an_integer,"x"}'),
        ("amqp://h?auth_mechanism=none", '{unknown_mechanism,"none"}'),
        ("amqps://h?verify=maybe", '{invalid_atom_parameter,"maybe"}'),
        ("amqp://" + "h" * 5000, "unable_to_parse_uri"),
    ],
)
def test_what_is_no_uri_has_its_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidUri) as raised:
        parse(text)
    assert reason in str(raised.value)


def test_a_second_default_vhost() -> None:
    assert parse("amqp://h", "other").vhost == "other"
    assert parse("amqp://h/", "other").vhost == ""


def test_the_password_is_never_shown() -> None:
    text = "amqps://user:secret@host:5671/v?password=secret"
    assert "secret" not in repr(parse(text))
    assert parse(text).shown() == without_credentials(text) == "amqps://host:5671/v"
    assert without_password("amqp://user:secret@host/v") == "amqp://user:******@host/v"
    shown = without_password("amqps://user:secret@host/v@w?verify=verify_peer&password=secret&keyfile=/k@l")
    assert shown == "amqps://user:******@host/v@w?verify=verify_peer&password=******&keyfile=/k@l"
    assert without_credentials("amqp://host/v@w") == without_password("amqp://host/v@w") == "amqp://host/v@w"


@pytest.mark.parametrize(
    "broken",
    [
        "amqp://user:secret@",
        "x://user:secret@h:y?z",
        "amqp://user:secret@h:x/%",
        "amqp://user:se/secret@h",
        "amqp://user:secret/secret@h/v",
        "amqp://user:se@secret@h",
        "amqp://user:secret?secret#secret@h",
        "amqp:/user:secret@h",
        "user:secret@h",
        "amqp://user:secret\n@h",
    ],
)
def test_a_text_that_is_no_uri_does_not_show_its_password(broken: str) -> None:
    """A password with characters that have to be encoded is what mostly makes a URI invalid."""
    assert "secret" not in without_password(broken)
    assert "secret" not in without_credentials(broken)


def test_a_uri_without_parameters_has_the_defaults() -> None:
    assert parse("amqp://h") == AmqpUri("amqp://h", host="h")
