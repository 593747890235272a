"""The operations on users, their passwords, tags and limits. Source: management §3.2; RabbitMQ 3.10.8's output."""

from typing import Final

from node.operations.operation import BOTH, EX_DATAERR, EX_NOUSER, EX_SOFTWARE, Operation, Refusal, Table

_NO_USER: Final = {"no_such_user": Refusal(EX_NOUSER, 'User "{0}" does not exist')}
_NOT_IN: Final = "Error:\nError: failed to authenticate user \"{user}\"\nuser '{user}' - invalid credentials"

USERS: Final = Table(
    "Users",
    (
        Operation(
            "add_user",
            "user password",
            "Creates a user without permissions; without <password> the password is read from standard input",
            'Adding user "{user}" ...',
            "<username> <password>",
            refusals={"user_already_exists": Refusal(EX_SOFTWARE, 'User "{0}" already exists')},
            is_slow=True,
        ),
        Operation(
            "authenticate_user",
            "user password",
            "Checks a user's password; the exit code is the result",
            'Authenticating user "{user}" ...',
            "<username> <password>",
            refusals={"refused": Refusal(EX_DATAERR, _NOT_IN)},
            is_slow=True,
        ),
        Operation(
            "change_password",
            "user password",
            "Changes a user's password",
            'Changing password for user "{user}" ...',
            "<username> <password>",
            refusals=_NO_USER,
            is_slow=True,
        ),
        Operation(
            "clear_password",
            "user",
            "Clears a user's password: the user can then not log in with a password",
            'Clearing password for user "{user}" ...',
        ),
        Operation(
            "clear_user_limits",
            "user limit",
            "Clears one limit of a user, or all of them",
            'Clearing "{limit}" limit for user "{user}" ...',
            "<username> <limit_type> | all",
        ),
        Operation("delete_user", "user", "Deletes a user", 'Deleting user "{user}" ...', refusals=_NO_USER),
        Operation(
            "list_user_limits",
            "--user?",
            "Lists the limits of a user, or of all users",
            usage="[--user <username>] [--global]",
            tools=BOTH,
        ),
        Operation(
            "list_users",
            "",
            "Lists users and their tags",
            "Listing users ...",
            shows=("user", "tags"),
            tools=BOTH,
        ),
        Operation(
            "set_user_limits",
            "user limits:json",
            "Sets limits of a user",
            'Setting user limits to "{limits}" for user "{user}" ...',
            "<username> <definition>",
        ),
        Operation(
            "set_user_tags",
            "user tags*",
            "Sets a user's tags",
            'Setting tags for user "{user}" to [{tags}] ...',
            refusals=_NO_USER,
        ),
    ),
)
