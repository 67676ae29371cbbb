"""Writes the certificate authorities that this machine trusts in Java's key store format.

A Java from a wheel comes with its own list, which lacks a company's private authorities.
OpenSSL knows them, and Python knows where OpenSSL keeps them.

The format is JKS version 2, as `sun.security.provider.JavaKeyStore` reads it: every Java does,
and no other program is needed to write it.
"""

import hashlib
import ssl
from pathlib import Path

_MAGIC, _VERSION, _CERTIFICATE = 0xFEEDFEED, 2, 2
_PASSWORD = "changeit"  # noqa: S105  Java's default, which it tries where none is named
_WHITENER = b"Mighty Aphrodite"


def write_trust_store(path: Path) -> Path:
    """Write the authorities that this machine trusts to `path`; returns it."""
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    body = _number(_MAGIC) + _number(_VERSION) + _number(len(certificates))
    body += b"".join(
        _entry(index, certificate) for index, certificate in enumerate(certificates)
    )
    seal = hashlib.sha1(_PASSWORD.encode("utf-16-be") + _WHITENER + body)  # noqa: S324  the format's
    path.write_bytes(body + seal.digest())
    return path


def _entry(index: int, certificate: bytes) -> bytes:
    head = _number(_CERTIFICATE) + _text(f"authority{index}") + _number(0, 8)
    return head + _text("X.509") + _number(len(certificate)) + certificate


def _text(value: str) -> bytes:
    return _number(len(value), 2) + value.encode()


def _number(value: int, size: int = 4) -> bytes:
    return value.to_bytes(size, "big")
