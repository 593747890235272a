"""A certificate authority for tests: certificates with any names, subjects and passwords, each in files of its own.

Certificates as `fluffle certs` makes them are in `tests.kit.certificates`.
"""

import datetime
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Identity:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    certificate_file: str
    key_file: str


class Authority:
    """A certificate authority in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        self.root: Identity | None = None
        self.root = self.issue([("CN", "test authority")])
        self.ca_file = self.root.certificate_file

    def issue(
        self,
        parts: list[tuple[str, str]],
        sans: list[x509.GeneralName] | None = None,
        password: str | None = None,
    ) -> Identity:
        kinds = {
            "CN": NameOID.COMMON_NAME,
            "O": NameOID.ORGANIZATION_NAME,
            "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
            "C": NameOID.COUNTRY_NAME,
            "L": NameOID.LOCALITY_NAME,
            "DC": NameOID.DOMAIN_COMPONENT,
            "EMAILADDRESS": NameOID.EMAIL_ADDRESS,
            "UID": NameOID.USER_ID,
        }
        subject = x509.Name([x509.NameAttribute(kinds[kind], value) for kind, value in parts])
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.root.certificate.subject if self.root else subject
        start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
            .not_valid_after(start + datetime.timedelta(days=36500))
            .add_extension(x509.BasicConstraints(ca=self.root is None, path_length=None), critical=True)
        )
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
        certificate = builder.sign(self.root.key if self.root else key, hashes.SHA256())
        self.count += 1
        files = [self.directory / f"{self.count}.{kind}.pem" for kind in ("cert", "key")]
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password.encode())
                if password
                else serialization.NoEncryption(),
            )
        )
        return Identity(certificate, key, str(files[0]), str(files[1]))


def client_context(authority: Authority, identity: Identity | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca_file)
    if identity:
        context.load_cert_chain(identity.certificate_file, identity.key_file)
    return context
