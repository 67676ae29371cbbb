"""A receiver of web hooks on this machine: what came, and what it answers."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = int | tuple[int, str] | tuple[int, str, dict[str, str]] | None
"""A status, with a text, with headers; None: the connection is closed without a word."""


class Receiver:
    """Keeps each request; `answer` is asked with the body that has come."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answer: Callable[[Any], Answer] = lambda _: 200
        self.url = ""

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, _, body in self.requests]

    def taken(self, path: str) -> list[Any]:
        """The documents of a path, as one that looks at ids has them."""
        seen, documents = set(), []
        for body in self.bodies:
            if body["path"] == path and body["id"] not in seen:
                seen.add(body["id"])
                documents += body["documents"]
        return documents


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = receiver.answer(json.loads(body))
            if answer is None:
                self.close_connection = True
                return
            status, text, headers = (
                *(answer if isinstance(answer, tuple) else (answer,)),
                "",
                {},
            )[:3]
            if 200 <= status < 300:
                receiver.requests.append((self.path, dict(self.headers.items()), body))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
