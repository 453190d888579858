"""Serve a review to browsers on this machine.

Whoever has the token that is part of the printed address may decide; pages of other sites may not.
"""

import base64
import errno
import hashlib
import hmac
import json
import logging
import secrets
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from oneof.review.pictures import THUMBNAIL_SIDE
from oneof.review.session import Review
from oneof.storage.printable import one_line, shortened
from oneof.storage.strict_json import parse_json

HOST = "127.0.0.1"
_POLICY = "default-src 'none'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
_MAX_CARDS = 10  # rows that a tab may hold
MAX_NAME_LENGTH = 100
_MAX_DRAIN_SECONDS = 2.0  # without a byte
_MAX_DRAIN_BYTES = 1 << 28
Json = dict[str, Any]
_logger = logging.getLogger(__name__)


class Refusal(NamedTuple):
    """Refusal of a request, with the reason."""

    message: str
    status: HTTPStatus = HTTPStatus.FORBIDDEN


class LocalServer(ThreadingHTTPServer):
    """Answer requests from this machine that no page of another site can make."""

    daemon_threads = True
    request_queue_size = 512  # connections that wait to be accepted; the system refuses more
    max_body = 1 << 16  # bytes of a request
    policy = "default-src 'none'"  # the Content-Security-Policy of replies to GET
    routes: dict[str, Callable[[Json], Any]]  # by method and path, as "GET /"; return JSON, or content and its type

    def __init__(self, review: Review, port: int) -> None:
        self.review = review
        super().__init__((HOST, port), RequestHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that the browser broke off; report other errors as usual."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def refuse(self, query: Json, headers: Any, path: str) -> Refusal | None:
        """Return how a request is refused, or None.

        A browser names the site whose page sends a request as its origin; other programs name none.
        """
        hosts = [f"{name}:{self.server_port}" for name in (HOST, "localhost")]
        if headers.get("Host") not in hosts:
            return Refusal("the host must be this machine.")
        origins = [f"http://{host}" for host in hosts]
        origin = headers.get("Origin")
        if origin is not None and origin not in origins:
            return Refusal("only this page may decide.")
        return None


class RequestHandler(BaseHTTPRequestHandler):
    """Handle one connection: JSON in and out, errors as one line."""

    server: LocalServer
    protocol_version = "HTTP/1.1"
    timeout = 60
    body_was_read = True
    client_closes = False  # after this request

    def finish(self) -> None:
        """End the connection; first receive what the client still sends, or the reply may be lost on its way."""
        super().finish()
        if not self.body_was_read:
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_WR)
                self.connection.settimeout(_MAX_DRAIN_SECONDS)
                n_received = 0
                while n_received < _MAX_DRAIN_BYTES:
                    chunk = self.connection.recv(1 << 16)
                    if not chunk:
                        break
                    n_received += len(chunk)

    def do_GET(self) -> None:
        self.client_closes = self.close_connection
        self.close_connection = True  # unless the whole request was read
        has_body = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        self.body_was_read = not has_body
        try:
            status, reply = self._answer()
        except (ValueError, TypeError, KeyError) as error:
            return self.send_json(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except TimeoutError:
            return self.send_json(HTTPStatus.REQUEST_TIMEOUT, {"error": "the request must arrive whole; it did not."})
        except OSError as error:
            return self.send_json(_status_of(error), {"error": _message_of(error)})
        except Exception as error:  # whatever it is, the page is told, and the next request is answered
            _logger.warning(f"a request to {one_line(self.path)} failed: {error!r}")
            message = "the server failed; its terminal says why."
            return self.send_json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": message})
        if isinstance(reply, tuple):
            content, content_type = reply
            return self.send(content, content_type, status)
        return self.send_json(status, reply)

    do_POST = do_GET

    def _answer(self) -> tuple[HTTPStatus, Any]:
        """Do what is requested; return the status, and JSON or content with its type."""
        url = urlsplit(self.path)
        fields = parse_qs(url.query, keep_blank_values=True)
        query: Json = {name: values[-1] for name, values in fields.items()}
        refusal = self.server.refuse(query, self.headers, url.path)
        if refusal is not None:
            return refusal.status, {"error": refusal.message}
        route = self.server.routes.get(f"{self.command} {url.path}")
        if route is None:
            return HTTPStatus.NOT_FOUND, {"error": "there is nothing here."}
        if self.command != "GET":
            query.update(self._read_body())
        self.close_connection = self.client_closes or not self.body_was_read
        return HTTPStatus.OK, route(query)

    def _read_body(self) -> Json:
        """Return the JSON object in the body of the request."""
        announced = ", ".join(self.headers.get_all("Content-Length", []))
        if "Transfer-Encoding" in self.headers:
            announced = "a body in chunks"
        length = -1
        if announced.isdecimal():
            length = int(announced)
        if not 0 <= length <= self.server.max_body:
            raise ValueError(
                f"a request must have a length of at most {self.server.max_body} bytes; "
                f"got {shortened(announced or 'none', 40)}."
            )
        content = self.rfile.read(length)
        self.body_was_read = True
        if len(content) < length:
            raise ValueError(f"a request must be as long as it says; {len(content)} of {length} bytes came.")
        body = parse_json(content or b"{}")
        if not isinstance(body, dict):
            raise TypeError("a request must be a JSON object; it is another value.")
        return body

    def send_json(self, status: HTTPStatus, value: Any) -> None:
        """Send a value as JSON."""
        self.send(json.dumps(value).encode(), "application/json", status)

    def send(self, content: bytes, content_type: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Send a reply; a page that was closed in the meantime is ignored."""
        self.send_response(status)
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="oneof"')
        policy = LocalServer.policy
        if self.command == "GET":
            policy = self.server.policy
        connection = "keep-alive"
        if self.close_connection:
            connection = "close"
        headers = {
            "Content-Type": content_type,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": policy,
            **_HEADERS,
            "Connection": connection,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        with suppress(ConnectionError):
            self.end_headers()
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send why a request cannot be answered as one line of JSON, not as a page."""
        self.close_connection = True
        self.body_was_read = False  # nobody knows how long it is
        status = HTTPStatus(code)
        self.command = getattr(self, "command", None) or ""
        self.send_json(status, {"error": one_line(message or status.phrase)})

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal is the person's."""


def _status_of(error: OSError) -> HTTPStatus:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HTTPStatus.INSUFFICIENT_STORAGE
    return HTTPStatus.INTERNAL_SERVER_ERROR


def _message_of(error: OSError) -> str:
    """Return the message to the page, with the file if the error names one."""
    reason = str(error.strerror or error)
    if error.filename:
        reason += f" ({error.filename})"
    return f"nothing was saved: {reason}."


class ReviewServer(LocalServer):
    """Serve one review; the policy of its page lets a browser run its script and nothing else."""

    def __init__(self, review: Review, who: str, port: int = 0, guidelines: str = "") -> None:
        self.who = who
        self.token = secrets.token_urlsafe(16)
        self.guidelines = guidelines
        script = _read_part("js")
        style = _read_part("css")
        page = _read_part("html").replace("{{ style }}", style).replace("{{ script }}", script)
        self.page = page.encode()
        self.policy = f"{_POLICY}; script-src '{_policy_hash(script)}'; style-src '{_policy_hash(style)}'"
        api: dict[str, Callable[[Json, str], Json]] = {
            "GET /api/state": self._state,
            "GET /api/labels": self._labels,
            "GET /api/guidelines": self._guidelines,
            "GET /api/next": self._next,
            "GET /api/grid": self._grid,
            "POST /api/decide": self._decide,
            "POST /api/undo": self._undo,
            "POST /api/close": self._close,
            "POST /api/learn": self._learn,
        }
        self.routes = {"GET /": self._page, "GET /picture": self._picture}
        for route, act in api.items():
            self.routes[route] = partial(self._with_state, act)
        super().__init__(review, port)

    @property
    def address(self) -> str:
        """Return the address of the page, with the token."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def refuse(self, query: Json, headers: Any, path: str) -> Refusal | None:
        """Return how a request is refused, or None.

        Everything requires the token except a reload of the page: the token has left its address by then, and the page shows
        nothing without one.
        """
        token = headers.get("X-Token") or query.get("token", "")
        is_reload = path == "/" and "token" not in query
        if not is_reload and not hmac.compare_digest(token.encode(), self.token.encode()):
            return Refusal("open the address that oneof review printed last.")
        return super().refuse(query, headers, path)

    def _with_state(self, act: Callable[[Json, str], Json], query: Json) -> Json:
        """Act for the person who sent the request, and add the state afterwards to the reply."""
        who = str(query.get("who") or self.who)[:MAX_NAME_LENGTH]
        reply = act(query, who)
        return {**reply, "state": self.review.state(who)}

    def _page(self, query: Json) -> tuple[bytes, str]:
        return self.page, "text/html; charset=utf-8"

    def _state(self, query: Json, who: str) -> Json:
        return {}

    def _labels(self, query: Json, who: str) -> Json:
        return {"labels": self.review.known_labels()}

    def _guidelines(self, query: Json, who: str) -> Json:
        return {"text": self.guidelines}

    def _next(self, query: Json, who: str) -> Json:
        n_cards = min(_MAX_CARDS, max(1, int(query.get("count", 1))))
        tab = str(query.get("tab", ""))
        self._release_others(tab, query)
        cards = self.review.next(
            tab,
            who,
            n_cards,
            random=query.get("random") == "1",
            pool=str(query.get("pool", "all")),
            label=str(query.get("label", "")),
        )
        return {"cards": cards}

    def _grid(self, query: Json, who: str) -> Json:
        tab = str(query.get("tab", ""))
        self._release_others(tab, query)
        return self.review.grid(tab, who, str(query.get("label", "")))

    def _release_others(self, tab: str, query: Json) -> None:
        """Release the rows that a tab no longer holds, if the request lists those that it does."""
        if "held" in query:
            numbers = str(query["held"]).split(",")
            held = {int(number) for number in numbers if number}
            self.review.retain_leases(tab, held)

    def _decide(self, query: Json, who: str) -> Json:
        return {"note": self.review.decide(query.get("answer"), who)}

    def _undo(self, query: Json, who: str) -> Json:
        decision_id = None
        if "id" in query:
            decision_id = str(query["id"])
        return {"card": self.review.undo(str(query.get("tab", "")), who, decision_id)}

    def _close(self, query: Json, who: str) -> Json:
        self.review.close_tab(str(query.get("tab", "")))
        return {}

    def _learn(self, query: Json, who: str) -> Json:
        self.review.learn()
        return {}

    def _picture(self, query: Json) -> tuple[bytes, str]:
        max_side = None
        if query.get("size") == "small":
            max_side = THUMBNAIL_SIDE
        return self.review.items.encoded_picture(int(query["row"]), str(query["column"]), max_side)


def _read_part(suffix: str) -> str:
    path = files("oneof.review") / f"page.{suffix}"
    return path.read_text("utf-8")


def _policy_hash(text: str) -> str:
    """Return the hash by which a Content-Security-Policy allows a script or a style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
