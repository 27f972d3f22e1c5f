"""A real HTTP server on loopback that misbehaves on request."""

import contextlib
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace


class FaultyServer(ThreadingHTTPServer):
    """Answers request number n with `steps[n]`, and with `default` when there is none left.

    A step is a function of the handler, such as those below. Use it as a context manager.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, *steps, default=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.steps, self.default = list(steps), default or answer(200, {"fine": True})
        self.requests = []
        self.arrived_s = []
        self.lock = threading.Lock()
        self.running = self.most_at_once = 0
        self.arrived = threading.Event()
        self.closing = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.closing.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """Clients that leave early are part of the tests."""

    def run(self, handler):
        with self.lock:
            self.requests.append(
                SimpleNamespace(
                    method=handler.command,
                    path=handler.path,
                    headers=handler.headers,
                    body=handler.body,
                    port=handler.client_address[1],
                )
            )
            self.arrived_s.append(time.monotonic())
            self.arrived.set()
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
            step = self.steps.pop(0) if self.steps else self.default
        try:
            step(handler)
        finally:
            with self.lock:
                self.running -= 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_any(self):
        self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.run(self)

    do_GET = do_POST = do_PUT = handle_any

    def log_message(self, *_):
        pass


def answer(status=200, body=b"", delay_s=0.0, **headers):
    """Any status; a body that is not bytes becomes JSON. Header names: retry_after -> Retry-After."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def step(handler):
        handler.server.closing.wait(delay_s)
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), str(value))
        handler.end_headers()
        handler.wfile.write(content)

    return step


def drop(handler):
    """Closes the connection without an answer."""
    handler.close_connection = True
    with contextlib.suppress(OSError):
        handler.connection.shutdown(socket.SHUT_RDWR)


def hang(handler):
    """Never answers."""
    handler.server.closing.wait(60)
    handler.close_connection = True


def trickle(handler):
    """A body of which a byte arrives every now and then."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(1000):
        if handler.server.closing.wait(0.05):
            break
        handler.wfile.write(b".")
    handler.close_connection = True


def endless(handler):
    """A body without an end, as fast as it goes."""
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    with contextlib.suppress(OSError):
        while not handler.server.closing.is_set():
            handler.wfile.write(b"x" * 65536)


def cut_short(handler):
    """Promises more bytes than it sends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"{}")
    handler.wfile.flush()
    drop(handler)
