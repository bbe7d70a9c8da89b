"""A real `kilonova serve` as a child process, and a small HTTP client for it.

Shared by demo.py, chaos.py and others. Uses only the standard library. It starts and kills the server and
sends requests; callers do the checks.
"""

import http.client
import http.cookiejar
import json
import os
import random
import re
import select
import shlex
import signal
import socket
import ssl
import subprocess
import time
import urllib.parse
import urllib.request

READY = re.compile(r"kilonova: ready on (https?://\S+) \(([0-9.]+) s\)")


class Wrong(Exception):
    """A check failed; the text says which."""


def end_tidily():
    """Makes SIGTERM and SIGINT end the script like Ctrl-C in a terminal: `finally` clauses end what it started.

    A shell starts background commands with SIGINT ignored, so both are set."""
    def end(number, _):
        raise SystemExit(128 + number)
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def free_port():
    """A free port below the ephemeral range, so that no client's own socket can take it."""
    for port in random.sample(range(20000, 30000), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise Wrong("no free port between 20000 and 30000 on 127.0.0.1")


class Serve:
    """`kilonova serve` on a state directory, always on the same port (0: a new one each start)."""

    def __init__(self, binary, state, nodes=None, database=None, config=None, port=None):
        self.binary, self.state, self.nodes, self.database = binary, state, nodes, database
        self.config = config
        self.port = free_port() if port is None else port
        self.process = None
        self.url = None
        self.starts = 0
        self.clouds = os.path.join(state, "clouds.yaml")

    def command(self):
        """The command line of the next start."""
        command = [self.binary, "serve", "--state-dir", self.state,
                   "--listen", f"127.0.0.1:{self.port}"]
        if self.config:
            command += ["--config", self.config]
        if self.nodes:
            command += ["--nodes", self.nodes]
        if self.database:
            command += ["--database", self.database]
        return command

    def start(self, timeout=60):
        """Starts it. Returns the line that says it is ready."""
        self.starts += 1
        self.out = os.path.join(self.state, "..", f"serve-{self.starts}.out")
        self.log = os.path.join(self.state, "..", f"serve-{self.starts}.log")
        with open(self.out, "wb") as out, open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=log, start_new_session=True)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            with open(self.out, encoding="utf-8", errors="replace") as out:
                line = READY.search(out.read())
            if line:
                self.url = line.group(1)
                return line.group(0)
            if self.process.poll() is not None:
                raise Wrong(f"kilonova serve ended with exit code {self.process.returncode} "
                            f"before it was ready:\n{self.tail()}")
            time.sleep(0.005)
        raise Wrong(f"kilonova serve was not ready after {timeout} s:\n{self.tail()}")

    def running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """kill -9, of the whole system: controller and simulated nodes are one process."""
        if self.running():
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def away(self):
        """Stops it, and any proxy in front of it, permanently."""
        self.kill()

    def stop(self, timeout=10):
        """Sends SIGTERM. Returns the exit code and the seconds until the end."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Wrong(f"kilonova serve did not end within {timeout} s of SIGTERM") from None
        return code, time.monotonic() - begun

    def tail(self, lines=25):
        """The end of its standard output and log, for a message."""
        text = ""
        for path in (self.out, self.log):
            with open(path, encoding="utf-8", errors="replace") as file:
                text += "".join(f"{line.rstrip()[:300]}\n" for line in file.readlines()[-lines:])
        return text

    def tidy(self, keep=5):
        """Removes the output of all but the last few starts."""
        for ending in ("out", "log"):
            path = os.path.join(self.state, "..", f"serve-{self.starts - keep}.{ending}")
            if os.path.exists(path):
                os.remove(path)

    def doctor(self):
        """Runs `kilonova doctor`. Returns its exit code and output."""
        command = [self.binary, "doctor", "--state-dir", self.state]
        if self.database:
            command += ["--database", self.database]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        return command, done.returncode, done.stdout

    def api(self, **more):
        """A client that trusts the authority named in the admin's files."""
        return Api(self.url, cacert=self.openrc().get("OS_CACERT"), **more)

    def openrc(self):
        """The variables that the first start wrote into `openrc`."""
        variables = {}
        with open(os.path.join(self.state, "openrc"), encoding="utf-8") as file:
            for line in file:
                words = shlex.split(line, comments=True)
                for word in words[1:] if words[:1] == ["export"] else []:
                    name, _, value = word.partition("=")
                    variables[name] = value
        return variables


def session(base, user, password):
    """The cookies of a browser in which a user has logged in to the dashboard."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with opener.open(f"{base}/dashboard/login") as page:
        csrf = re.search(r'name="csrf" value="([^"]*)"', page.read().decode()).group(1)
    form = urllib.parse.urlencode({"csrf": csrf, "user": user, "password": password}).encode()
    with opener.open(f"{base}/dashboard/login", form) as page:
        if "/dashboard/servers" not in page.url:
            raise Wrong(f"the login of {user} leads to {page.url}")
    return "; ".join(f"{one.name}={one.value}" for one in jar)


class Gone(Exception):
    """The server hung up or is not running: the answer, if any, is lost."""


class Api:
    """Plain HTTP, or HTTPS that trusts `cacert`, to all services on one persistent connection; one client per thread."""

    def __init__(self, url, token=None, timeout=30, cacert=None):
        self.url = url
        self.host = urllib.parse.urlsplit(url).netloc
        self.token = token
        self.timeout = timeout
        self.cacert = cacert
        self.connection = None

    def clone(self):
        """Another connection with the same token."""
        return Api(self.url, self.token, self.timeout, self.cacert)

    def connect(self):
        """A new connection."""
        if not self.url.startswith("https:"):
            return http.client.HTTPConnection(self.host, timeout=self.timeout)
        context = ssl.create_default_context(cafile=self.cacert)
        return http.client.HTTPSConnection(self.host, timeout=self.timeout, context=context)

    def has_ended(self):
        """True if the server has ended the connection; there is nothing else to read between two requests."""
        if self.connection is None or self.connection.sock is None:
            return False
        poll = select.poll()
        poll.register(self.connection.sock, select.POLLIN)
        return bool(poll.poll(0))

    def login(self, openrc):
        """Gets a token with the credentials of an openrc."""
        domain = {"name": openrc.get("OS_USER_DOMAIN_NAME", "Default")}
        user = {"name": openrc["OS_USERNAME"], "password": openrc["OS_PASSWORD"], "domain": domain}
        project = {"name": openrc["OS_PROJECT_NAME"],
                   "domain": {"name": openrc.get("OS_PROJECT_DOMAIN_NAME", "Default")}}
        body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}},
                         "scope": {"project": project}}}
        status, headers, answer = self.ask("POST", "/identity/v3/auth/tokens", body)
        if status != 201:
            raise Wrong(f"no token: {status} {answer}")
        self.token = headers["x-subject-token"]
        return answer["token"]

    def ask(self, method, path, body=None, headers=None):
        """Sends one request. Returns status, headers (lower case) and the JSON body or the text."""
        headers = {"Accept": "application/json", **(headers or {})}
        if self.token:
            headers["X-Auth-Token"] = self.token
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        if path.startswith("/compute"):
            headers.setdefault("OpenStack-API-Version", "compute 2.90")
        elif path.startswith("/placement"):
            headers.setdefault("OpenStack-API-Version", "placement 1.29")
        try:
            # The server ends connections that are idle for long.
            if self.has_ended():
                self.close()
            if self.connection is None:
                self.connection = self.connect()
            self.connection.request(method, path, body, headers)
            answer = self.connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Gone(str(error)) from error
        got = {name.lower(): value for name, value in answer.getheaders()}
        if answer.status in (502, 503, 504) and "x-openstack-request-id" not in got:
            self.close()
            raise Gone(f"the proxy has lost the server: {answer.status}")
        text = data.decode("utf-8", "replace")
        if got.get("content-type", "").startswith("application/json") and text:
            return answer.status, got, json.loads(text)
        return answer.status, got, text

    def expect(self, status, method, path, body=None, headers=None):
        """Like `ask`; any status but the expected one fails."""
        got, _, answer = self.ask(method, path, body, headers)
        if got != status:
            raise Wrong(f"{method} {path}: expected {status}, got {got}: {answer}")
        return answer

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def servers(self):
        """All servers of all projects, soft-deleted ones included, as the detailed list shows them, by id."""
        found, path = {}, "/compute/v2.1/servers/detail?all_tenants=True&soft_deleted=True&limit=1000"
        while path:
            answer = self.expect(200, "GET", path)
            found.update((server["id"], server) for server in answer["servers"])
            following = [link["href"] for link in answer.get("servers_links", [])
                         if link["rel"] == "next"]
            path = None
            if following and answer["servers"]:
                parts = urllib.parse.urlsplit(following[0])
                path = f"{parts.path}?{parts.query}"
        return found


# The statuses in which a server may stay.
RESTING = {"ACTIVE", "SHUTOFF", "ERROR", "PAUSED", "SUSPENDED", "RESCUE", "SHELVED",
           "SHELVED_OFFLOADED", "VERIFY_RESIZE", "SOFT_DELETED"}


def unsettled(servers):
    """The servers with an operation in progress."""
    return [server for server in servers.values()
            if server["status"] not in RESTING or server.get("OS-EXT-STS:task_state")]


def without_fault(servers):
    """The servers in ERROR without a fault message."""
    return [server for server in servers.values()
            if server["status"] == "ERROR" and not (server.get("fault") or {}).get("message")]


def settle(api, timeout=60, reasons=True):
    """Waits until nothing is in progress. Returns the servers then; those in ERROR must have a fault message."""
    deadline = time.monotonic() + timeout
    while True:
        servers = api.servers()
        busy = unsettled(servers)
        if not busy:
            break
        if time.monotonic() > deadline:
            states = ", ".join(f"{s['id']} {s['status']}/{s.get('OS-EXT-STS:task_state')}"
                               for s in busy[:5])
            raise Wrong(f"{len(busy)} server(s) still in progress after {timeout} s: {states}")
        time.sleep(0.05)
    mute = without_fault(servers)
    if mute and reasons:
        raise Wrong(f"server {mute[0]['id']} is in ERROR without a fault message")
    return servers
