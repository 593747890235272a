"""Documents that RabbitMQ 3.10.8 exported, of a broker that we filled: what is read of them, and what we export again.

`recorded/` has them as its HTTP API and its command line made them (management §2.2).
"""

import json
from pathlib import Path
from typing import Any

import pytest

from node.catalogue.access import check_login
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Bind, DeclareExchange
from node.catalogue.passwords import ALGORITHMS
from node.catalogue.records import User
from node.definitions.document import check_references, read
from node.definitions.export import Stamp, export
from tests.kit.office import Office

RECORDED = Path(__file__).parent / "recorded"
STAMP = Stamp("3.10.8", "RabbitMQ", "3.10.8")


def recorded(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / f"rabbitmq_{kind}.json").read_text())
    return found


def in_order(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its lists sorted: RabbitMQ has them in the order of its tables."""
    return {
        section: sorted(found, key=lambda each: json.dumps(each, sort_keys=True))
        if isinstance(found, list)
        else found
        for section, found in document.items()
    }


def imported(kind: str) -> Office:
    from node.admin.definitions import import_definitions

    office = Office()
    office.do(import_definitions(office.admin, recorded(kind)))
    return office


def test_what_http_exports_comes_back_as_it_was() -> None:
    document = recorded("http")
    assert in_order(export(imported("http").catalogue, STAMP)) == in_order(document)


def test_so_does_what_the_command_line_exports() -> None:
    """The command line's export is as recorded but for `internal` (not in 3.10.8's) and pairs that are objects here."""
    document, found = recorded("cli"), export(imported("cli").catalogue, STAMP, is_full=True)
    for exchange in found["exchanges"]:  # type: ignore[union-attr]
        del exchange["internal"]  # type: ignore[union-attr]
    for parameter in document["parameters"]:
        if parameter["component"] == "operator_policy":
            parameter["value"]["definition"] = dict(parameter["value"]["definition"])
    del found["product_name"], found["product_version"]
    assert in_order(found) == in_order(document)


def test_one_vhost_comes_back_under_another_name() -> None:
    from node.admin.definitions import import_definitions
    from node.admin.vhosts import put_vhost

    office, document = Office(), recorded("vhost")
    office.do(put_vhost(office.admin, "elsewhere"))
    office.do(import_definitions(office.admin, document, vhost="elsewhere"))
    found = export(office.catalogue, STAMP, vhost="elsewhere")
    for section in ("parameters", "policies"):
        for row in document[section]:
            row["vhost"] = "elsewhere"
    assert in_order(found) == in_order(document)
    assert {each.name for each in office.catalogue.users()} == {"guest"}


@pytest.mark.parametrize("kind", ["http", "cli"])
def test_passwords_of_all_three_algorithms(kind: str) -> None:
    catalogue = imported(kind).catalogue
    for name, password in (("ada", "ada-secret"), ("bob", "bob-secret"), ("cleo", "cleo-secret")):
        assert isinstance(check_login(catalogue, name, password, is_loopback=True), User), name
    assert {user.hashing_algorithm for user in catalogue.users()} == ALGORITHMS
    assert not isinstance(check_login(catalogue, "nopass", "nopass", is_loopback=True), User)


def test_twice_changes_nothing() -> None:
    from node.admin.definitions import import_definitions

    office = imported("http")
    before = export(office.catalogue, STAMP)
    office.do(import_definitions(office.admin, recorded("http")))
    assert export(office.catalogue, STAMP) == before


def test_it_can_be_read_without_a_broker() -> None:
    found = read(recorded("http"))
    check_references(found, Catalogue())
    assert len(found.queues) == 7


def test_exchanges_of_protocols_and_their_bindings_are_left_out() -> None:
    """The protocol declares them again where it is used; a document with their bindings alone could not be imported."""
    office = imported("http")
    before = export(office.catalogue, STAMP)
    office.world.submit(DeclareExchange("/", "amq.mqtt.wills", "fanout", durable=True, internal=True))
    office.world.submit(Bind("/", "amq.mqtt.wills", "exchange", "amq.topic", ""))
    assert export(office.catalogue, STAMP) == before
