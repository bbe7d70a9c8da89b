"""An HTTP service on 127.0.0.1 that asks a Keystone for the owner of each token.

A subclass answers requests one at a time and raises `Refusal`. Long work runs in a thread of its own.
"""

import json
import os
import threading
import traceback
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Refusal(Exception):
    """An answer that is not a success: its status, its kind and its message."""

    def __init__(self, status, kind, message):
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


class Caller:
    """The owner of a token."""

    def __init__(self, token, project, roles, service):
        self.token, self.project, self.admin = token, project, "admin" in roles
        # True if the request has the token of another service too.
        self.service = service


class Request:
    """A request of a caller."""

    def __init__(self, caller, method, path, query, body, headers):
        self.caller, self.method, self.body, self.headers = caller, method, body, headers
        self.parts = tuple(urllib.parse.unquote(part) for part in path.strip("/").split("/"))
        self.query = urllib.parse.parse_qs(query, keep_blank_values=True)

    def one(self, name):
        """The value of a key of the query, or None."""
        return self.query.get(name, [None])[0]


def fetch(method, url, token=None, body=None, timeout=60, **headers):
    """Sends a request. Returns status, headers and body."""
    headers = {"X-Auth-Token": token, **headers} if token else headers
    if body is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(body).encode()
    request = urllib.request.Request(url, data=body, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


class Service:
    """A running service; `keystone` is the login of a service user (`Keystone`)."""

    def __init__(self, name, keystone, folder):
        self.name, self.keystone = name, keystone
        self.lock = threading.RLock()
        self.log_file = open(os.path.join(folder, f"{name}.log"), "a", encoding="utf-8")
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self):
                service.handle(self)
            do_GET = do_POST = do_PUT = do_DELETE = _any

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        """Closes its port."""
        self.server.shutdown()
        self.server.server_close()
        self.log_file.close()

    def log(self, text):
        """A line of its log."""
        if not self.log_file.closed:
            self.log_file.write(text.rstrip() + "\n")
            self.log_file.flush()

    def openly(self, path):
        """The answer for a caller without a token, or None: lists of versions."""
        return None

    def answer(self, request):
        """Status and body for a request; called with the lock held."""
        raise NotImplementedError

    def refusal(self, refusal):
        """The body of a refusal."""
        raise NotImplementedError

    def handle(self, http):
        """Answers one request."""
        parts = urllib.parse.urlsplit(http.path)
        data = http.rfile.read(int(http.headers.get("content-length") or 0))
        try:
            found = self.openly(parts.path)
            if found is None:
                caller = self.keystone.caller(http.headers)
                if caller is None:
                    found = 401, {"error": {"code": 401, "title": "Unauthorized", "message":
                                            "The request you have made requires authentication."}}
                else:
                    body = json.loads(data) if data else {}
                    request = Request(caller, http.command, parts.path, parts.query, body, http.headers)
                    with self.lock:
                        found = self.answer(request)
            status, body = found
        except Refusal as refusal:
            status, body = refusal.status, self.refusal(refusal)
        except Exception:  # pylint: disable=broad-except
            self.log(traceback.format_exc())
            status, body = 500, self.refusal(Refusal(500, "computeFault", "The server has failed."))
        self.log(f"{http.command} {http.path} {status}" + (f" {json.dumps(body)}" if status >= 400 else ""))
        text = b"" if body is None else json.dumps(body).encode()
        http.send_response(status)
        if body is not None:
            http.send_header("Content-Type", "application/json")
        http.send_header("Content-Length", str(len(text)))
        http.send_header("X-Openstack-Request-Id", "req-of-the-lab")
        http.end_headers()
        http.wfile.write(text)


class Keystone:
    """A login at a Keystone, which knows the owners of tokens."""

    def __init__(self, url, user, password, project):
        self.url, self.user, self.password, self.project = url, user, password, project
        self.lock, self.own, self.known = threading.Lock(), None, {}

    def token(self, instead_of=None):
        """The token of the login, renewed if it is no longer valid."""
        with self.lock:
            if self.own is None or self.own == instead_of:
                domain = {"name": "Default"}
                body = {"auth": {
                    "identity": {"methods": ["password"], "password": {"user": {
                        "name": self.user, "password": self.password, "domain": domain}}},
                    "scope": {"project": {"name": self.project, "domain": domain}}}}
                status, headers, text = fetch("POST", f"{self.url}/v3/auth/tokens", body=body)
                if status != 201:
                    raise OSError(f"no token for {self.user}: {status} {text!r}")
                self.own = headers["X-Subject-Token"]
            return self.own

    def _of(self, token, expired=False):
        """Project and roles of a token, or None."""
        if token not in self.known:
            url = f"{self.url}/v3/auth/tokens" + ("?allow_expired=1" if expired else "")
            own = self.token()
            status, _, text = fetch("GET", url, own, **{"X-Subject-Token": token})
            if status == 401:
                status, _, text = fetch("GET", url, self.token(instead_of=own), **{"X-Subject-Token": token})
            if status != 200:
                return None
            found = json.loads(text)["token"]
            self.known[token] = found.get("project", {}).get("id"), {role["name"] for role in found.get("roles", [])}
        return self.known[token]

    def caller(self, headers):
        """The caller with these headers, or None."""
        voucher = headers.get("x-service-token")
        service = bool(voucher) and "service" in (self._of(voucher) or ("", ()))[1]
        token = headers.get("x-auth-token")
        found = self._of(token, service) if token else None
        return Caller(token, *found, service) if found else None
