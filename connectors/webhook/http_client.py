"""Sends HTTP requests: retries transient failures, and reports others as errors.

Source: RFC 9110, 5.6.2 (tokens).
"""

import logging
import re
import ssl
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import urllib3
from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError, SSLError

from connectors.connector import Refused
from streams.errors import Indeterminate, InvalidUsage
from streams.storage.client.backoff import longer_s

log = logging.getLogger(__name__)

PASSING = {408, 425, 429}
"""Statuses below 500 that another try may not meet."""
REFUSING = {400, 409, 413, 415, 422}
"""Statuses that are about the documents, where others are about the address or the caller."""
LONGEST_PAUSE_S = 60.0
SHOWN = 500
"""Characters of an answer in an error."""
JSON = "application/json"
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
"""Of a header."""


class Sender:
    """Sends to one endpoint. One thread."""

    def __init__(  # noqa: PLR0913 settings, passed by name
        self,
        *,
        url: str,
        headers: Mapping[str, str],
        timeout_s: float,
        retries: int,
        ca_file: str | None = None,
        verify: bool = True,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        check_headers(headers)
        self._url, self._headers, self._retries = url.rstrip("/"), headers, retries
        self._pause = pause
        try:
            self._pool = urllib3.PoolManager(
                timeout=timeout_s,
                retries=False,
                cert_reqs="CERT_REQUIRED" if verify else "CERT_NONE",
                assert_hostname=None if verify else False,
                ssl_context=context(url, ca_file) if verify else None,
            )
        except OSError as error:
            raise InvalidUsage(
                f"ca_file: expected certificates in {ca_file}: {error}"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.clear()

    def send(self, path: str, id_: str, body: bytes) -> None:
        """Return once the endpoint has taken a request.

        Errors: Refused, InvalidUsage; Indeterminate if it does not answer, or is not well.
        """
        pause_s, left = 0.0, self._retries
        while True:
            failure, asked_s = self._tried(path, id_, body)
            if failure is None:
                return
            if not left:
                raise Indeterminate(f"{path}: {failure}, in {self._retries + 1} tries")
            left, pause_s = left - 1, longer_s(pause_s)
            log.warning("a request is repeated", extra={"id": id_, "cause": failure})
            self._pause(min(max(pause_s, asked_s), LONGEST_PAUSE_S))

    def _tried(self, path: str, id_: str, body: bytes) -> tuple[str | None, float]:
        """Why it failed of what can pass, if it did, and for how long to wait at least."""
        headers = {**self._headers, "Content-Type": JSON, "Idempotency-Key": id_}
        try:
            answer = self._pool.request(
                "POST", f"{self._url}/{path}", body=body, headers=headers, redirect=False
            )
        except SSLError as error:
            if (why := untrusted(error.args[0])) is not None:
                raise InvalidUsage(f"{path}: {why}") from error
            return str(error), 0.0
        except HTTPError as error:
            return str(error), 0.0
        except (UnicodeError, ValueError) as error:
            raise InvalidUsage(f"{path}: cannot be sent: {error}") from error
        return judged(path, answer)


def check_headers(headers: Mapping[str, str]) -> None:
    """Errors: InvalidUsage for one that cannot be sent, whose value is not shown."""
    for name, value in headers.items():
        if not NAME.fullmatch(name):
            raise InvalidUsage(f"header {name!r}: expected letters, digits and - in its name")
        if not VALUE.fullmatch(value):
            raise InvalidUsage(
                f"header {name}: expected a value of one line in Latin-1, actual another one"
            )


def untrusted(error: object) -> str | None:
    """Return what is wrong with the endpoint's TLS, and what to do, if that cannot pass."""
    match error:
        case ssl.SSLCertVerificationError(verify_message=why):
            return (
                "expected a certificate of the endpoint that is trusted and valid,"
                f" actual one that is not ({why}): give its authority in ca_file, or have it"
                " renewed there"
            )
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "RECORD_LAYER_FAILURE"):
            return "expected TLS of the endpoint, actual something else: write http in its url"
        case _:
            return None


def judged(path: str, answer: BaseHTTPResponse) -> tuple[str | None, float]:
    """Like `Sender._tried`, for a response. Errors: Refused, InvalidUsage."""
    status = answer.status
    if 200 <= status < 300:  # noqa: PLR2004 as HTTP has it
        return None, 0.0
    said = f"the endpoint answers {status} {answer.reason or ''}".rstrip()
    if text := answer.data[: 4 * SHOWN].decode(errors="replace").strip():
        said = f"{said}: {text[:SHOWN]}"
    if status in PASSING or status >= 500:  # noqa: PLR2004
        return said, seconds(answer.headers.get("Retry-After"))
    if status in REFUSING:
        raise Refused(f"{path}: {said}")
    raise InvalidUsage(f"{path}: {said}")


def context(url: str, ca_file: str | None) -> ssl.SSLContext | None:
    """The trust store for certificates; none where none is asked for. Errors: OSError.

    To load the authorities of a machine takes longer than some requests do.
    """
    if ca_file is None and url.startswith("http:"):
        return None
    return ssl.create_default_context(cafile=ca_file)


def seconds(text: str | None) -> float:
    """A Retry-After in seconds; 0 if there is none, or it is a date."""
    return float(text) if text is not None and text.isdecimal() else 0.0
