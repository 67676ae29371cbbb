"""Why a coordinator did not answer, in one line: what was expected, what came, what to do.

The error of a library names neither the URL nor the option that is wrong, and the same mistake
(http where TLS is spoken) ends in one of several errors, as chance has it.
"""

import http.client
import json
import socket
import ssl
import urllib.error
from collections.abc import Mapping
from urllib.parse import urlsplit

SHOWN = 300
"""Most characters of an answer in an error."""

NO_ANSWERS = (OSError, http.client.HTTPException)
"""What the library raises: `urllib.error.URLError` is an OSError, and so are those of TLS."""

PASSWORD = "give the file that holds it with --password-file"  # noqa: S105  a text
AUTHORITY = "give the certificate of its authority with --tls-authority"
CLIENT = "give one that its authority of clients signs with --tls-certificate and --tls-key"

EXPIRED, NOT_YET = 10, 9
"""Codes of certificates that are not valid now. Source: OpenSSL, X509_verify_cert_error."""
OTHER_NAME = frozenset({62, 63, 64})
"""Codes of certificates that are for another host, mail address or IP address."""

_ALERTS: Mapping[str, str] = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "none",
    "TLSV1_ALERT_UNKNOWN_CA": "one of an authority that it does not trust",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "none",
    "SSLV3_ALERT_BAD_CERTIFICATE": "one that it does not take",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "one that has expired",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "one that is not for clients",
}
"""Which certificate the coordinator says it was shown, by the reason of the TLS error."""

_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
"""Reasons of TLS errors that mean that the other side speaks something else."""


def unanswered(url: str, cause: Exception, *, has_password: bool) -> str:
    """Return why there is no answer from this URL."""
    if isinstance(cause, urllib.error.HTTPError):
        return _refused(url, cause, has_password=has_password)
    reason = (
        getattr(cause, "reason", cause) if isinstance(cause, urllib.error.URLError) else cause
    )
    match reason:
        case ssl.SSLCertVerificationError():
            return _certificate(url, reason)
        case ssl.SSLError():
            return _tls(url, reason)
        case ConnectionResetError() | BrokenPipeError():  # `RemoteDisconnected` too
            return _closed(url)
        case http.client.HTTPException():
            return _no_http(url)
        case _:
            return f"no coordinator answers at {url}: {_unreached(url, reason)}"


def _unreached(url: str, reason: object) -> str:
    match reason:
        case socket.gaierror():
            return f"no host is called {urlsplit(url).hostname}: check the name"
        case ConnectionRefusedError():
            return "nothing listens there: check the port, or start it"
        case TimeoutError():
            return "nothing came in time: check the host and the port"
        case _:
            return one_line(str(reason))


def not_a_coordinator(url: str, came: str) -> str:
    """Return what is wrong with a URL at which something else answers."""
    return f"expected a coordinator at {url}, actual {came}: check the host and the port"


def _refused(url: str, cause: urllib.error.HTTPError, *, has_password: bool) -> str:
    code = cause.code
    said = cause.read(4 * SHOWN).decode(errors="replace")
    if code == http.HTTPStatus.UNAUTHORIZED:
        came = "another one" if has_password else "none"
        return (
            f"the coordinator at {url} refused the request: expected the password,"
            f" actual {came}: {PASSWORD}"
        )
    try:
        error = json.loads(said)["error"]
    except (ValueError, TypeError, KeyError):
        return not_a_coordinator(url, f"HTTP {code} {cause.reason} of something else")
    if code == http.HTTPStatus.NOT_FOUND:
        return not_a_coordinator(url, f"another service ({one_line(str(error))})")
    return f"the coordinator at {url} refused the request: {one_line(str(error))}"


def _certificate(url: str, cause: ssl.SSLCertVerificationError) -> str:
    host = urlsplit(url).hostname
    start = f"expected a certificate of the coordinator at {url}"
    match cause.verify_code:
        case code if code in OTHER_NAME:
            return (
                f"{start} for {host}, actual one for another name: use the name that it is for"
            )
        case code if code == EXPIRED:
            return (
                f"{start} that is valid now, actual one that has expired: have it renewed there"
            )
        case code if code == NOT_YET:
            return (
                f"{start} that is valid now, actual one that is not valid yet: check the clocks"
            )
        case _:
            why = cause.verify_message
            return f"{start} that is trusted, actual one that is not ({why}): {AUTHORITY}"


def _tls(url: str, cause: ssl.SSLError) -> str:
    if cause.reason in _NO_TLS:
        return (
            f"expected TLS at {url}, actual something else: if the coordinator speaks"
            f" none, write {_with_scheme(url, 'http')}"
        )
    came = _ALERTS.get(cause.reason or "")
    if came is not None:
        expected = f"the coordinator at {url} expected a certificate of this client"
        return f"{expected}, actual {came}: {CLIENT}"
    return f"expected TLS with the coordinator at {url}, actual {one_line(str(cause))}"


def _closed(url: str) -> str:
    came = (
        f"expected an answer of a coordinator at {url}, actual a connection that was"
        " closed: if it has just ended, try again when it is back"
    )
    if urlsplit(url).scheme == "https":
        return f"{came}, else check the host and the port"
    return f"{came}; if it speaks TLS, write {_with_scheme(url, 'https')}"


def _no_http(url: str) -> str:
    if urlsplit(url).scheme == "https":
        return not_a_coordinator(url, "something that is not HTTP")
    return (
        f"expected HTTP of a coordinator at {url}, actual something else: if it speaks"
        f" TLS, write {_with_scheme(url, 'https')}, else check the host and the port"
    )


def _with_scheme(url: str, scheme: str) -> str:
    return urlsplit(url)._replace(scheme=scheme).geturl()


def one_line(text: str) -> str:
    """Return a text as one short line."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."
