"""The phases of a client's connection, in their order."""

from enum import IntEnum


class Phase(IntEnum):
    """How far a connection has come. It goes forward only."""

    CONNECTING = 0
    """The socket does not exist yet, or TLS is not done; the core knows nothing of this phase."""

    STARTING = 1
    """The protocol header is sent; `connection.start` is to come."""

    AUTHENTICATING = 2
    """`connection.start-ok` is sent; `connection.tune` is to come. A broker that refuses the login ends it here."""

    OPENING = 3
    """`connection.open` is sent; a broker that refuses the vhost ends it here."""

    RUNNING = 4
    CLOSING = 5
    """`connection.close` is sent."""

    CLOSED = 6
