"""What can be wrong with what another node sends."""


class Malformed(Exception):
    """What a peer sent makes no sense."""
