"""The operations on permissions in vhosts and on topic exchanges. Source: management §3.2; RabbitMQ 3.10.8's output."""

from typing import Final

from node.operations.operation import BOTH, EX_NOUSER, EX_UNAVAILABLE, Operation, Refusal, Table

_NO_PLACE: Final = {
    "no_such_vhost": Refusal(EX_UNAVAILABLE, "Virtual host {0} does not exist"),
    "no_such_user": Refusal(EX_NOUSER, "User {0} does not exist"),
}
_NO_PATTERN: Final = "{{:invalid_regexp, %s{0}%s, {{'{1[0]}', {1[1]}}}}}"
"""An Erlang term; which quotes RabbitMQ shows depends on the command."""

PERMISSIONS: Final = Table(
    "Access Control",
    (
        Operation(
            "clear_permissions",
            "--vhost=/ user",
            "Revokes a user's permissions in a virtual host",
            'Clearing permissions for user "{user}" in vhost "{vhost}" ...',
            refusals=_NO_PLACE,
        ),
        Operation(
            "clear_topic_permissions",
            "--vhost=/ user exchange?",
            "Clears a user's topic permissions on one exchange or on all",
            'Clearing topic permissions on "{exchange}" for user "{user}" in vhost "{vhost}" ...',
            refusals=_NO_PLACE,
        ),
        Operation(
            "list_permissions",
            "--vhost=/",
            "Lists permissions in a virtual host",
            'Listing permissions for vhost "{vhost}" ...',
            shows=("user", "configure", "write", "read"),
            tools=BOTH,
        ),
        Operation(
            "list_topic_permissions",
            "--vhost=/",
            "Lists topic permissions in a virtual host",
            'Listing topic permissions for vhost "{vhost}" ...',
            shows=("user", "exchange", "write", "read"),
            tools=BOTH,
        ),
        Operation(
            "list_user_permissions",
            "user",
            "Lists a user's permissions in all virtual hosts",
            'Listing permissions for user "{user}" ...',
            shows=("vhost", "configure", "write", "read"),
            tools=BOTH,
        ),
        Operation(
            "list_user_topic_permissions",
            "user",
            "Lists a user's topic permissions in all virtual hosts",
            'Listing topic permissions for user "{user}" ...',
            shows=("vhost", "exchange", "write", "read"),
            tools=BOTH,
        ),
        Operation(
            "set_permissions",
            "--vhost=/ user configure write read",
            "Sets what a user may do in a virtual host: three regular expressions over names",
            'Setting permissions for user "{user}" in vhost "{vhost}" ...',
            refusals={**_NO_PLACE, "invalid_regexp": Refusal(EX_UNAVAILABLE, _NO_PATTERN % ("'", "'"))},
        ),
        Operation(
            "set_topic_permissions",
            "--vhost=/ user exchange write read",
            "Sets which routing keys a user may use with a topic exchange",
            'Setting topic permissions on "{exchange}" for user "{user}" in vhost "{vhost}" ...',
            refusals={**_NO_PLACE, "invalid_regexp": Refusal(EX_UNAVAILABLE, _NO_PATTERN % ('"', '"'))},
        ),
    ),
)
