#!/usr/bin/env python3
"""Opens consoles of a simulated guest as a user's browser does, against a real `kilonova serve`.

    scripts/consoles.py [--kilonova PROGRAM] [--database URL] [--verbose]

The host is a process of its own. With a database there are two controllers: the host polls one, and the
browser uses the other. `openstack console url show` gives the URLs; a small websocket client speaks RFB to
the display and types at the serial port. Hosts and controllers are killed while consoles are open. Exits
with 1 at the first check that fails.
"""

import base64
import json
import os
import shutil
import socket
import ssl
import struct
import sys
import time
import urllib.parse
import urllib.request

from chaos_compute import COMPUTE
from chaos_stage import Host, register
from cli import Lane
from frame import options_of, parsed, tell
from stack import Gone, Serve, Wrong, free_port

HOST = """
[[host]]
name = "node1"
address = "192.0.2.1"
vcpus = 64
memory_mb = 65536
disk_gb = 1000
traits = ["COMPUTE_NODE"]
"""
# Maximum number of consoles of one user.
MOST = 64


class Closed(Exception):
    """The server closed the websocket."""

    def __init__(self, code, reason):
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


class Socket:
    """A websocket client, as far as consoles need it (RFC 6455)."""

    def __init__(self, url, cacert=None, origin=None):
        parts = urllib.parse.urlsplit(url)
        secure = parts.scheme in ("https", "wss")
        port = parts.port or (443 if secure else 80)
        self.socket = socket.create_connection((parts.hostname, port), timeout=30)
        if secure:
            context = ssl.create_default_context(cafile=cacert)
            self.socket = context.wrap_socket(self.socket, server_hostname=parts.hostname)
        lines = [f"GET {parts.path}?{parts.query} HTTP/1.1", f"Host: {parts.netloc}", "Upgrade: websocket",
                 "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: binary",
                 f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}"]
        if origin:
            lines.append(f"Origin: {origin}")
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.raw, self.data = b"", b""
        while b"\r\n\r\n" not in self.raw:
            self.more()
        head, self.raw = self.raw.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise Wrong(f"no websocket: {head[:300]}")

    def more(self):
        """Reads from the connection."""
        got = self.socket.recv(65536)
        if not got:
            raise Gone("the connection ended without a close frame")
        self.raw += got

    def take(self, count):
        """The next bytes of the connection."""
        while len(self.raw) < count:
            self.more()
        got, self.raw = self.raw[:count], self.raw[count:]
        return got

    def frame(self):
        """Reads a frame."""
        first, second = self.take(2)
        length = second & 127
        if length == 126:
            length = struct.unpack(">H", self.take(2))[0]
        elif length == 127:
            length = struct.unpack(">Q", self.take(8))[0]
        content = self.take(length)
        kind = first & 15
        if kind == 8:
            raise Closed(struct.unpack(">H", content[:2])[0], content[2:].decode())
        if kind == 9:
            self.write(10, content)
        elif kind in (1, 2):
            self.data += content

    def read(self, count):
        """The next bytes of the console."""
        while len(self.data) < count:
            self.frame()
        got, self.data = self.data[:count], self.data[count:]
        return got

    def write(self, kind, content):
        """Sends a frame of at most 125 bytes, masked as a client must."""
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(content))
        self.socket.sendall(struct.pack(">BB", 0x80 | kind, 0x80 | len(content)) + mask + masked)

    def send(self, content):
        """Sends bytes to the console."""
        self.write(2, content)

    def closed(self):
        """The code and the reason with which the server closes it."""
        try:
            while True:
                self.frame()
        except Closed as end:
            return end.code, end.reason

    def rfb(self):
        """The handshake of RFB. Returns the name and the size of the display."""
        if self.read(12) != b"RFB 003.008\n":
            raise Wrong("this is not RFB 3.8")
        self.send(b"RFB 003.008\n")
        if self.read(2) != b"\x01\x01":
            raise Wrong("security type None is not the only one offered")
        self.send(b"\x01")
        if self.read(4) != bytes(4):
            raise Wrong("the handshake failed")
        self.send(b"\x01")
        width, height = struct.unpack(">HH", self.read(4))
        self.read(16)
        length = struct.unpack(">I", self.read(4))[0]
        return self.read(length).decode(), width, height

    def shades(self, width, height):
        """Reads a whole picture. Returns the number of different pixels."""
        self.send(struct.pack(">BBHHHH", 3, 0, 0, 0, width, height))
        self.read(16)
        pixels = self.read(width * height * 4)
        return len({pixels[at:at + 4] for at in range(0, len(pixels), 4)})

    def close(self):
        self.socket.close()

    def shut(self):
        """Ends the connection, so that another thread no longer waits for it."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The server has ended it already.
            pass


class Story:
    """The processes and the server."""

    def __init__(self, serve, lane, folder):
        self.serve, self.lane, self.folder = serve, lane, folder
        self.second, self.host, self.server = None, None, None

    def start(self):
        config = os.path.join(self.folder, "kilonova.conf")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"[serial_console]\nenabled = true\n"
                       f"[glance_store]\nfilesystem_store_datadir = {self.folder}/images\n")
        self.serve.config = config
        self.serve.start()
        polled = self.serve
        if self.serve.database:
            state = os.path.join(self.folder, "second", "state")
            os.makedirs(state, mode=0o700)
            shutil.copy(os.path.join(self.serve.state, "seal.key"), state)
            self.second = Serve(self.serve.binary, state, None, self.serve.database, config)
            self.second.start()
            polled = self.second
        self.serve.topology = os.path.join(self.folder, "hosts.toml")
        with open(self.serve.topology, "w", encoding="utf-8") as file:
            file.write(HOST)
        self.host = Host(self.serve, "node1", self.folder)
        self.host.control = polled.url
        self.host.start()
        self.api = self.serve.api()
        self.api.login(self.serve.openrc())
        register(self.api, 1)
        self.lane.tick("a host registers at " + ("another controller" if self.second else "the controller"))
        flavor = {"flavor": {"id": "tiny", "name": "tiny", "ram": 64, "vcpus": 1, "disk": 1}}
        self.api.expect(200, "POST", f"{COMPUTE}/flavors", flavor)
        image = self.api.expect(201, "POST", "/image/v2/images",
                                {"name": "tiny", "disk_format": "raw", "container_format": "bare"})["id"]
        self.api.expect(204, "PUT", f"/image/v2/images/{image}/file", b"x",
                        {"Content-Type": "application/octet-stream"})
        made = self.api.expect(202, "POST", f"{COMPUTE}/servers", {"server": {
            "name": "one", "flavorRef": "tiny", "imageRef": image, "networks": "none"}})
        self.server = made["server"]["id"]
        self.becomes("ACTIVE")

    def becomes(self, status):
        """Waits for a status of the server."""
        deadline = time.monotonic() + 60
        while True:
            server = self.api.expect(200, "GET", f"{COMPUTE}/servers/{self.server}")["server"]
            if server["status"] == status and not server.get("OS-EXT-STS:task_state"):
                return
            if time.monotonic() > deadline or server["status"] == "ERROR":
                raise Wrong(f"the server is {server['status']}, not {status}: {server.get('fault')}")
            time.sleep(0.01)

    def url(self, kind):
        """The URL that `openstack console url show` prints."""
        shown = json.loads(self.lane.run("console", "url", "show", kind, "one", "-f", "json").out)
        return shown["url"]

    def browser(self, url, **more):
        """A websocket to which the page at the URL connects."""
        parts = urllib.parse.urlsplit(url)
        path = urllib.parse.parse_qs(parts.query)["path"][0]
        address = urllib.parse.urlunsplit((parts.scheme, parts.netloc, "/console/websockify", path.lstrip("?"), ""))
        return Socket(address, self.serve.openrc().get("OS_CACERT"), **more)

    def again(self, url):
        """Reconnects a browser, as the page does, until the display answers. Returns the browser and the
        display's name."""
        deadline = time.monotonic() + 60
        while True:
            try:
                browser = self.browser(url)
                name, _, _ = browser.rfb()
                return browser, name
            except (Closed, Gone, OSError) as error:
                if time.monotonic() > deadline or getattr(error, "code", None) == 1008:
                    raise Wrong(f"no console: {error}") from error
                time.sleep(0.1)

    def displays(self):
        """The page, the display, and refused clients."""
        url = self.url("--novnc")
        page = f"{self.serve.url}/console/novnc/"
        self.lane.tick("the URL is that of the page", url.startswith(f"{page}vnc_auto.html?path=%3Ftoken%3D"), url)
        context = ssl.create_default_context(cafile=self.serve.openrc().get("OS_CACERT"))
        for name in ("vnc_auto.html", "vnc_lite.html", "page.js", "core/rfb.js"):
            with urllib.request.urlopen(page + name, context=context, timeout=30) as answer:
                self.lane.tick(f"{name} is served", answer.status == 200 and len(answer.read()) > 100)
        browser = self.browser(url, origin=url.split("/console")[0])
        name, width, height = browser.rfb()
        self.lane.tick("the display has the server's name", name == "one", name)
        self.lane.tick("it shows a picture", browser.shades(width, height) == 2)
        code, reason = self.browser(url, origin="http://evil.example").closed()
        self.lane.tick("a page of another site is refused", code == 1008 and "Origin" in reason, reason)
        code, reason = self.browser(url[:-4] + "0000").closed()
        self.lane.tick("another token is refused", code == 1008 and "token" in reason, reason)
        token = url.rsplit("%3D", 1)[1]
        shown = self.api.expect(200, "GET", f"{COMPUTE}/os-console-auth-tokens/{token}")["console"]
        self.lane.tick("an operator's proxy finds the server", shown["instance_uuid"] == self.server)
        browser.close()
        return url

    def port(self, url):
        """A serial port that has written its prompt. Closed consoles count towards the limit for a moment."""
        deadline = time.monotonic() + 30
        while True:
            port = Socket(url)
            try:
                port.data = port.read(11)
                return port
            except Closed as end:
                if end.code != 1013 or time.monotonic() > deadline:
                    raise Wrong(f"no serial port: {end}") from end
                time.sleep(0.05)

    def serials(self):
        """The serial port."""
        url = self.url("--serial")
        port = self.port(url)
        self.lane.tick("the serial port has a prompt", port.data == b"one login: ")
        port.read(11)
        port.send(b"root\r")
        self.lane.tick("and an echo", port.read(5) == b"root\r")
        ports = [self.port(url) for _ in range(MOST - 1)]
        for each in ports:
            each.read(11)
        for number, each in enumerate(ports):
            each.send(bytes([number]))
        echoes = [each.read(1) for each in ports]
        self.lane.tick(f"{MOST} consoles are open at once", echoes == [bytes([n]) for n in range(MOST - 1)])
        code, reason = Socket(url).closed()
        self.lane.tick("a user cannot open more", code == 1013, reason)
        for each in [port, *ports]:
            each.close()

    def ends(self, url):
        """Ends consoles in each possible way, and opens them again."""
        browser, _ = self.again(url)
        self.lane.run("server", "stop", "one")
        code, _ = browser.closed()
        self.lane.tick("a console ends when its guest stops", code == 1011, code)
        self.becomes("SHUTOFF")
        code, reason = self.browser(url).closed()
        self.lane.tick("the page receives the reason", (code, reason) == (1011, "The server is shut off."), reason)
        self.lane.run("server", "start", "one")
        self.becomes("ACTIVE")
        browser, name = self.again(url)
        self.lane.tick("it opens again when the guest runs again", name == "one")
        self.host.kill()
        code, _ = browser.closed()
        self.lane.tick("a console ends when its agent is killed", code == 1011, code)
        self.host.start()
        browser, name = self.again(url)
        self.lane.tick("it opens again when the agent runs again", name == "one")
        if self.serve.database and self.serve.port:
            self.serve.kill()
            try:
                browser.closed()
                raise Wrong("a killed controller sends a reason")
            except (Gone, OSError):
                self.lane.tick("a console ends when its controller is killed")
            self.serve.start()
            browser, name = self.again(url)
            self.lane.tick("its token is valid after the next start", name == "one")
        code, _ = self.serve.stop()
        end, reason = browser.closed()
        self.lane.tick("a controller that stops sends the code for it", end == 1012, reason)
        self.lane.tick("and ends with 0", code == 0, code)

    def log(self):
        """The audit lines, without any token."""
        text = ""
        for serve in [self.serve, *([self.second] if self.second else [])]:
            for number in range(1, serve.starts + 1):
                with open(os.path.join(serve.state, "..", f"serve-{number}.log"), encoding="utf-8") as file:
                    text += file.read()
        for line in ("a user requested a console", "a console begins", "a console ended"):
            self.lane.tick(f"the log has: {line}", line in text)
        self.lane.tick("no log has a token in a query", "token=" not in text)

    def away(self):
        for process in (self.host, self.second):
            if process is not None:
                process.kill()


def story(serve, clients, folder):
    told = Story(serve, Lane(clients), folder)
    try:
        told.start()
        url = told.displays()
        told.serials()
        told.ends(url)
        told.log()
    finally:
        told.away()


def main():
    parser = options_of(__doc__)
    options = parsed(parser)
    if options.way != "plain":
        parser.error("the host of this script trusts no authority")
    return tell("consoles of a simulated guest", options, story, port=free_port())


if __name__ == "__main__":
    sys.exit(main())
