"""The error for a malformed message of another node."""


class Malformed(Exception):
    """A message of a peer is malformed; the text says why."""
