"""Definitions imported, exported and loaded at the start (management §2.2; what RabbitMQ 3.10.8 does)."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node.admin.admin import Admin
from node.admin.definitions import (
    AT_BOOT,
    DefinitionsUnreadable,
    export_definitions,
    import_definitions,
    load_at_boot,
    parse,
)
from node.catalogue.commands import EnablePlugin
from node.catalogue.records import Permission
from node.config.config import DefinitionsConfig
from tests.kit.office import Office

QUEUE = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}


def load(office: Office, document: dict[str, Any], **options: Any) -> None:
    office.do(import_definitions(office.admin, document, **options))


def test_the_log_tells_what_is_imported() -> None:
    office = Office()
    load(
        office,
        {
            "queues": [QUEUE, {**QUEUE, "name": "amq.gen-x"}],
            "vhosts": [{"name": "v"}],
            "policies": [
                {"vhost": "/", "name": "p", "pattern": "", "definition": {"max-length": 5}},
            ],
            "bindings": [
                {
                    "source": "nope",
                    "vhost": "/",
                    "destination": "q",
                    "destination_type": "queue",
                    "routing_key": "",
                }
            ],
        },
    )
    assert office.logged() == [
        "[info] Asked to import definitions. Acting user: guest",
        "[warning] Skipping import of a queue whose name begins with 'amq.', name: amq.gen-x, acting user: guest",
        "[info] Importing concurrently 1 vhosts...",
        "[info] Adding vhost 'v' (description: '', tags: [])",
        "[info] Successfully set permissions for 'guest' in virtual host 'v' to '.*', '.*', '.*'",
        "[info] Importing sequentially 1 policies...",
        "[info] Importing concurrently 1 queues...",
        "[info] Importing concurrently 1 bindings...",
        "[warning] Skipping import of a binding: no exchange 'nope' in vhost '/'",
    ]


def test_what_is_there_stays() -> None:
    """§2.2: queues and exchanges even when they are others; users and vhosts are overwritten."""
    office = Office()
    load(office, {"queues": [QUEUE], "vhosts": [{"name": "v", "description": "d"}]})
    before = office.catalogue.queue("/", "q")
    load(office, {"queues": [{**QUEUE, "durable": False}], "vhosts": [{"name": "v"}]})
    assert office.catalogue.queue("/", "q") == before
    assert office.catalogue.vhost("v").description == ""  # type: ignore[union-attr]


def test_a_mistake_is_found_before_anything_is_changed() -> None:
    office = Office()
    document = {"users": [{"name": "u", "tags": ""}], "queues": [{**QUEUE, "vhost": "nope"}]}
    assert office.fails(import_definitions(office.admin, document)) == ("invalid", ["no_such_vhost", "nope"])
    assert office.catalogue.user("u") is None


def test_permissions_of_a_new_user_only() -> None:
    """§2.2: `permissions` within a user count when it is made."""
    office = Office()
    row = {"configure": "a", "write": "b", "read": "c"}
    document = {
        "users": [{"name": "u", "tags": "", "permissions": {"v": row}}],
        "vhosts": [{"name": "v"}],
    }
    load(office, document)
    assert office.catalogue.permission("v", "u") == Permission("v", "u", "a", "b", "c")
    row["read"] = "d"
    load(office, document)
    assert office.catalogue.permission("v", "u") == Permission("v", "u", "a", "b", "c")


def test_limits_do_not_hold_for_what_comes_with_them() -> None:
    office = Office()
    limits = {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 1}}
    load(office, {"parameters": [limits], "queues": [QUEUE, {**QUEUE, "name": "r"}]})
    assert len(office.catalogue.queues("/")) == 2
    more: dict[str, Any] = {"queues": [{**QUEUE, "name": "s"}]}
    kind, reason = office.fails(import_definitions(office.admin, more))
    assert kind == "invalid"
    assert isinstance(reason, list)
    assert reason[0] == "vhost_limit_exceeded"
    _, reason = office.fails(import_definitions(office.admin, more, vhost="/"))
    assert isinstance(reason, str)


def test_of_one_vhost() -> None:
    office = Office()
    assert office.fails(import_definitions(office.admin, {}, vhost="v")) == (
        "not_found",
        ["no_such_vhost", "v"],
    )
    assert office.fails(export_definitions(office.admin, vhost="v"))[0] == "not_found"
    load(office, {"queues": [QUEUE]}, vhost="/")
    found = office.do(export_definitions(office.admin, vhost="/"))
    assert found["queues"] == [{key: value for key, value in QUEUE.items() if key != "vhost"}]
    assert next(iter(found)) == "rabbit_version"


def test_many() -> None:
    office = Office()
    load(office, {"queues": [{**QUEUE, "name": f"q{number}"} for number in range(1000)]})
    assert len(office.catalogue.queues("/")) == 1000
    assert len({queue.uid for queue in office.catalogue.queues("/")}) == 1000


@pytest.mark.parametrize("data", [b"{", b"[]", b"NaN", b"5", b"\xff", b"[" * 100_000])
def test_what_is_no_document(data: bytes) -> None:
    with pytest.raises(ValueError, match="failed_to_parse_json"):
        parse(data)


# --- at the start ---


def booting(office: Office, options: DefinitionsConfig | None = None) -> Admin:
    config = replace(office.admin.config, definitions=options or DefinitionsConfig())
    return replace(office.admin, by=AT_BOOT, config=config)


def test_a_directory_is_loaded_in_the_order_of_names(tmp_path: Path) -> None:
    for name, description in (("b.json", "second"), ("a.txt", "first")):
        (tmp_path / name).write_text(json.dumps({"vhosts": [{"name": "v", "description": description}]}))
    (tmp_path / ".hidden").write_text("junk")
    (tmp_path / "sub").mkdir()
    office = Office()
    office.do(load_at_boot(booting(office), str(tmp_path)))
    assert office.catalogue.vhost("v").description == "second"  # type: ignore[union-attr]
    assert office.catalogue.permission("v", AT_BOOT) is None
    assert office.logged()[:3] == [
        f"[info] Applying definitions from directory {tmp_path}",
        f"[info] Applying definitions from file at '{tmp_path}/a.txt'",
        "[info] Asked to import definitions. Acting user: rmq-internal",
    ]


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    office, path = Office(), tmp_path / "d.json"
    for content, text in (
        (None, "No such file or directory"),
        ("{", "failed_to_parse_json"),
        ('{"users":[{"name":"u"}]}', "tags_not_present"),
    ):
        if content is not None:
            path.write_text(content)
        with pytest.raises(DefinitionsUnreadable, match=f"{path}: {text}"):
            office.do(load_at_boot(booting(office), str(path)))


def test_nothing_is_done_when_nothing_changed(tmp_path: Path) -> None:
    """`definitions.skip_if_unchanged`."""
    path = tmp_path / "d.json"
    path.write_text('{"vhosts":[{"name":"v"}]}')
    office = Office()
    admin = booting(office, DefinitionsConfig(skip_if_unchanged=True, hashing_algorithm="sha512"))
    office.do(load_at_boot(admin, str(path)))
    office.logged()
    office.do(load_at_boot(admin, str(path)))
    assert len(office.logged()) == 1
    path.write_text('{"vhosts":[{"name":"w"}]}')
    office.do(load_at_boot(admin, str(path)))
    assert office.catalogue.vhost("w") is not None


def test_exchanges_of_enabled_plugins_come_with_definitions() -> None:
    """A binding that the type refuses is stored, as the catalogue does not know types, and routes nothing."""
    office = Office()
    exchange = {"name": "h", "vhost": "/", "type": "x-consistent-hash", "durable": True, "auto_delete": False}
    queue = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False}
    bindings = [
        {"vhost": "/", "source": "h", "destination": "q", "destination_type": "queue", "routing_key": key}
        for key in ("no weight", "3")
    ]
    document = {"exchanges": [exchange], "queues": [queue], "bindings": bindings}
    kind, text = office.fails(import_definitions(office.admin, document))
    assert (kind, "invalid exchange type 'x-consistent-hash'" in str(text)) == ("invalid", True)
    name = "rabbitmq_consistent_hash_exchange"
    office.do(office.admin.submit(EnablePlugin(name, ("x-consistent-hash",))))
    assert office.do(import_definitions(office.admin, document)) == []
    router = office.world.broker.vhosts["/"].router
    assert router.route("h", ["k"]) == ["q"]
