"""The other end of a connection, as far as the transport knows it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TlsFacts:
    """The TLS parameters of a connection, and the client's certificate, in RabbitMQ's words; empty without one.

    protocol: `tlsv1.3`.   key_exchange, cipher, hash: parts of the suite.   validity: `notBefore - notAfter`.
    """

    protocol: str = ""
    key_exchange: str = ""
    cipher: str = ""
    hash: str = ""
    subject: str = ""
    issuer: str = ""
    validity: str = ""


@dataclass(frozen=True, slots=True)
class ClientEndpoint:
    """The other end of a connection, as far as the transport knows it.

    address, local: `IP:PORT`.   certificate_user: for EXTERNAL; None, and the reason, without a verified
        certificate.
    """

    address: str = "127.0.0.1:0"
    local: str = "127.0.0.1:5672"
    is_loopback: bool = True
    is_tls: bool = False
    certificate_user: str | None = None
    certificate_problem: str = ""
    tls: TlsFacts | None = None


def host_of(address: str) -> str:
    """Return the host of `IP:PORT`."""
    return address.rpartition(":")[0]
