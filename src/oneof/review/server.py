"""The review in a browser: a server on this machine alone. Who knows the token in its address may decide; other sites may not."""

import base64
import errno
import hashlib
import hmac
import json
import logging
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

from oneof.review.cards import PICTURES
from oneof.review.session import Review
from oneof.storage.printable import bounded, shortened

HOST = "127.0.0.1"
_POLICY = "default-src 'none'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_ALWAYS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
_AHEAD = 10  # rows that a tab may hold
Json = dict[str, Any]
_log = logging.getLogger(__name__)


class LocalServer(ThreadingHTTPServer):
    """Answers requests of this machine that no other site's page can make."""

    daemon_threads = True
    request_queue_size = 512  # connections that wait to be accepted; the system refuses what comes beyond
    most = 1 << 16  # bytes of a request
    policy = "default-src 'none'"
    ways: dict[str, Callable[[Json], Any]]  # by method and path, as "GET /": gives JSON, or content and its kind

    def __init__(self, review: Review, port: int) -> None:
        self.review = review
        super().__init__((HOST, port), Answering)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about a connection that the browser broke off; report other errors as usual."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def refusal(self, asked: Json, headers: Any, path: str) -> str | None:
        """Return why a request is not answered, or None. A browser names the site whose page asks; programs name none."""
        own = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}
        if headers.get("Host") not in own:
            return "the host must be this machine."
        if headers.get("Origin") not in {None, *(f"http://{name}" for name in own)}:
            return "only this page may decide."
        return None


class Answering(BaseHTTPRequestHandler):
    """One connection: JSON in and out; what is wrong is said in one line."""

    server: LocalServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        self.close_connection = True  # unless the whole request was read
        try:
            status, reply = self._answer()
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            message = "a request must not be nested so deeply." if isinstance(error, RecursionError) else str(error)
            return self.say(HTTPStatus.BAD_REQUEST, {"error": message})
        except OSError as error:
            return self.say(_status_of(error), {"error": _message_of(error)})
        except Exception as error:  # whatever it was, the page is told, and the next request is answered
            _log.warning(f"a request to {bounded(self.path)} failed: {error!r}")
            return self.say(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "the server failed; its terminal says why."})
        if isinstance(reply, tuple):
            content, kind = reply
            return self.send(content, kind, status)
        return self.say(status, reply)

    do_POST = do_GET

    def _answer(self) -> tuple[HTTPStatus, Any]:
        """Do what is requested; return the status, and JSON or content with its kind."""
        url = urlsplit(self.path)
        fields = parse_qs(url.query, keep_blank_values=True)
        asked: Json = {name: values[-1] for name, values in fields.items()}
        way = self.server.ways.get(f"{self.command} {url.path}")
        refusal = self.server.refusal(asked, self.headers, url.path)
        if refusal:
            return HTTPStatus.FORBIDDEN, {"error": refusal}
        if way is None:
            return HTTPStatus.NOT_FOUND, {"error": "there is nothing here."}
        if self.command != "GET":
            asked.update(self._body())
        self.close_connection = False
        return HTTPStatus.OK, way(asked)

    def _body(self) -> Json:
        given = self.headers.get("Content-Length") or ""
        length = int(given) if given.isdecimal() else -1
        if not 0 <= length <= self.server.most:
            limit = f"a length of at most {self.server.most} bytes"
            raise ValueError(f"a request must have {limit}; got {shortened(given or 'none', 40)}.")
        body = json.loads(self.rfile.read(length) or b"{}", parse_constant=_refuse_constant)
        if not isinstance(body, dict):
            raise TypeError("a request must be a JSON object; it is another value.")
        _check_text(body)
        return body

    def say(self, status: HTTPStatus, value: Any) -> None:
        self.send(json.dumps(value).encode(), "application/json", status)

    def send(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        about = {"Content-Type": kind, "Content-Length": str(len(content))}
        policy = self.server.policy if self.command == "GET" else "default-src 'none'"
        about |= {"Content-Security-Policy": policy, **_ALWAYS}
        for name, value in (about | {"Connection": "close" if self.close_connection else "keep-alive"}).items():
            self.send_header(name, value)
        with suppress(ConnectionError):  # a page that was closed meanwhile is no news
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the person's."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"a request must hold JSON, which has no {name}.")


def _check_text(body: Json) -> None:
    """Refuse lone surrogates, which JSON can spell and no file can hold."""
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a request must hold text that is valid Unicode; it has a lone surrogate.") from None


def _status_of(error: OSError) -> HTTPStatus:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return HTTPStatus.INSUFFICIENT_STORAGE if is_full else HTTPStatus.INTERNAL_SERVER_ERROR


def _message_of(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    return f"nothing was saved: {error.strerror or error}{where}."


class ReviewServer(LocalServer):
    """Serves one review: a page, whose policy lets a browser run its script and nothing else."""

    def __init__(self, review: Review, who: str, port: int = 0) -> None:
        self.who, self.token = who, secrets.token_urlsafe(16)
        parts = (files("oneof.review") / f"page.{part}" for part in ("html", "js", "css"))
        html, script, style = (part.read_text("utf-8") for part in parts)
        page = html.replace("{{ style }}", style).replace("{{ script }}", script).encode()
        sums = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (script, style)]
        self.policy = f"{_POLICY}; script-src 'sha256-{sums[0]}'; style-src 'sha256-{sums[1]}'"
        api: dict[str, Callable[[Json, str], Json]] = {
            "GET /api/state": lambda asked, who: {},
            "GET /api/labels": lambda asked, who: {"labels": review.known_labels()},
            "GET /api/next": self._next,
            "POST /api/decide": lambda asked, who: {"note": review.decide(asked.get("answer"), who)},
            "POST /api/undo": self._undo,
            "POST /api/close": self._close,
            "POST /api/learn": self._learn,
        }
        self.ways = {way: partial(self._with_state, act) for way, act in api.items()}
        self.ways |= {"GET /": lambda asked: (page, "text/html; charset=utf-8"), "GET /picture": self._picture}
        super().__init__(review, port)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def refusal(self, asked: Json, headers: Any, path: str) -> str | None:
        """Require the token, but for the page itself: it shows nothing without one, and the token has left its address."""
        given = headers.get("X-Token") or asked.get("token", "")
        is_reloaded = path == "/" and "token" not in asked
        if not is_reloaded and not hmac.compare_digest(given.encode(), self.token.encode()):
            return "open the address that oneof review printed last."
        return super().refusal(asked, headers, path)

    def _with_state(self, act: Callable[[Json, str], Json], asked: Json) -> Json:
        """What is done for whoever asks, and what is known afterwards."""
        who = str(asked.get("who") or self.who)[:100]
        return act(asked, who) | {"state": self.review.state(who)}

    def _next(self, asked: Json, who: str) -> Json:
        count = min(_AHEAD, max(1, int(asked.get("count", 1))))
        random = asked.get("random") == "1"
        pool = str(asked.get("pool", "all"))
        tab = str(asked.get("tab", ""))
        if "held" in asked:
            self.review.retain_leases(tab, {int(row) for row in str(asked["held"]).split(",") if row})
        return {"cards": self.review.next(tab, who, count, random, pool)}

    def _undo(self, asked: Json, who: str) -> Json:
        decision_id = str(asked["id"]) if "id" in asked else None
        return {"card": self.review.undo(str(asked.get("tab", "")), who, decision_id)}

    def _close(self, asked: Json, who: str) -> Json:
        self.review.close_tab(str(asked.get("tab", "")))
        return {}

    def _learn(self, asked: Json, who: str) -> Json:
        self.review.learn()
        return {}

    def _picture(self, asked: Json) -> tuple[bytes, str]:
        path = self.review.items.picture(int(asked["row"]), str(asked["column"]))
        if path is None:
            raise ValueError("the row has no such picture beside its table.")
        return path.read_bytes(), PICTURES[path.suffix.lower()]
