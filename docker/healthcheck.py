"""Exit with 0 if the service of this container answers /healthz, or listens nowhere.

It reads what the service reads: SLACKWATER_LISTEN, and SLACKWATER_TLS_CERTIFICATE with its key.
The certificate is not verified, for the request goes to the container itself; where the service
wants certificates of clients, it presents the service's own.
"""

import http.client
import os
import ssl
import sys

LOOPBACK = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104  looked up, not bound
"""Where a service is reached that listens everywhere."""
TIMEOUT_S = 10.0


def connection(listen: str) -> http.client.HTTPConnection:
    """To the service that listens there."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    host = LOOPBACK.get(host, host)
    certificate = os.environ.get("SLACKWATER_TLS_CERTIFICATE")
    if not certificate:
        return http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if os.environ.get("SLACKWATER_TLS_CLIENT_AUTHORITY"):
        context.load_cert_chain(certificate, os.environ.get("SLACKWATER_TLS_KEY"))
    return http.client.HTTPSConnection(host, int(port), timeout=TIMEOUT_S, context=context)


def is_healthy(listen: str) -> bool:
    """Whether the service that listens there answers that it works."""
    service = connection(listen)
    try:
        service.request("GET", "/healthz")
        return service.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        service.close()


if __name__ == "__main__":
    listen = os.environ.get("SLACKWATER_LISTEN", "")
    sys.exit(0 if not listen or is_healthy(listen) else 1)
