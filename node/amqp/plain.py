"""Values of field tables as JSON has them; the types of numbers are lost."""

from typing import Any

from node.amqp.field_table import FieldValue, Table


def plain_table(table: Table) -> dict[str, Any]:
    """Return a field table as an object of JSON."""
    return {name: plain(field.value) for name, field in table.items()}


def plain(value: FieldValue) -> Any:
    """Return a value of a field table as JSON has it: octets as text, a decimal as a float."""
    match value:
        case dict():
            return plain_table(value)
        case list():
            return [plain(field.value) for field in value]
        case bytes():
            return value.decode("utf-8", "replace")
        case (int(scale), int(unscaled)):
            return unscaled / 10**scale
        case _:
            return value
