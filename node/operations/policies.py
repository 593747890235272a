"""The operations on policies, of users and of operators. Source: management §3.2; RabbitMQ 3.10.8's output."""

from typing import Final

from node.operations.operation import BOTH, Operation, Table

_SET: Final = "--vhost=/ --priority:any=0 --apply-to=all name pattern:any definition:json"
_SHOWN: Final = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
_OPERATOR: Final = {"is_operator": True}


def _setting(what: str) -> str:
    return (
        f'Setting {what} "{{name}}" for pattern "{{pattern}}" to "{{definition}}" with priority "{{priority}}" '
        'for vhost "{vhost}" ...'
    )


POLICIES: Final = Table(
    "Policies",
    (
        Operation(
            "clear_operator_policy",
            "--vhost=/ name",
            "Clears an operator policy",
            'Clearing operator policy "{name}" on vhost "{vhost}" ...',
            calls="clear_policy",
            given=_OPERATOR,
        ),
        Operation(
            "clear_policy",
            "--vhost=/ name",
            "Clears (removes) a policy",
            'Clearing policy "{name}" on vhost "{vhost}" ...',
        ),
        Operation(
            "list_operator_policies",
            "--vhost=/",
            "Lists operator policy overrides for a virtual host",
            'Listing operator policy overrides for vhost "{vhost}" ...',
            shows=_SHOWN,
            calls="list_policies",
            given=_OPERATOR,
            tools=BOTH,
        ),
        Operation(
            "list_policies",
            "--vhost=/",
            "Lists all policies in a virtual host",
            'Listing policies for vhost "{vhost}" ...',
            shows=_SHOWN,
            tools=BOTH,
        ),
        Operation(
            "set_operator_policy",
            _SET,
            "Sets an operator policy that overrides a subset of arguments in user policies",
            _setting("operator policy override"),
            calls="set_policy",
            given=_OPERATOR,
        ),
        Operation("set_policy", _SET, "Sets or updates a policy", _setting("policy")),
    ),
)
