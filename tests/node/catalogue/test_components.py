"""Components of plug-ins' parameters."""

from node.catalogue.components import without_passwords
from node.catalogue.parameters import validate_parameter
from node.catalogue.records import Json

SHOVEL: dict[str, Json] = {
    "src-uri": ["amqp://u:secret@h", "amqp://h"],
    "src-queue": "q",
    "dest-uri": "amqp://",
}


def test_passwords_are_taken_out_of_uris() -> None:
    shown = without_passwords("shovel", SHOVEL | {"src-prefetch-count": 5})
    assert shown == {
        "src-uri": ["amqp://u:******@h", "amqp://h"],
        "src-queue": "q",
        "dest-uri": "amqp://",
        "src-prefetch-count": 5,
    }
    assert without_passwords("operator_policy", "amqp://u:secret@h") == "amqp://u:secret@h"


def test_a_component_is_unknown_unless_its_plug_in_is_enabled() -> None:
    assert validate_parameter("shovel", "s", SHOVEL, ()) == "component shovel not found"
    assert validate_parameter("shovel", "s", SHOVEL, ("rabbitmq_shovel",)) is None
    assert validate_parameter("shovel", "s", SHOVEL) is None
