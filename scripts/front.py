"""How clients reach a `kilonova serve`: directly, over its own TLS, or through haproxy, which terminates TLS.

Creates the certificates (with openssl) and starts haproxy. The authority is the test's own, so a client that
does not verify certificates, or follows a link without TLS, fails.
"""

import os
import shutil
import subprocess
import time

from stack import Serve, Wrong, free_port

WAYS = ("plain", "tls", "haproxy")

EXTENSIONS = "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n"

TLS = """[api]
cert = {folder}/cert.pem
key = {folder}/key.pem
cafile = {folder}/ca.pem
"""

PROXIED = """[api]
trusted_proxies = 127.0.0.1
[oslo_middleware]
enable_proxy_headers_parsing = true
"""

HAPROXY = """global
    maxconn 4000
defaults
    mode http
    option forwardfor
    timeout connect 5s
    timeout client 3m
    timeout server 3m
frontend users
    bind 127.0.0.1:{port} ssl crt {folder}/both.pem
    http-request set-header X-Forwarded-Proto https
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
    default_backend kilonova
backend kilonova
    server only 127.0.0.1:{behind}
"""


def certificates(folder):
    """Creates an authority in `ca.pem`; its certificate for this machine in `cert.pem`, `key.pem` and `both.pem`."""
    def openssl(*words):
        done = subprocess.run(["openssl", *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise Wrong(f"openssl {' '.join(words)}: {done.stdout}")

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test authority")
    openssl("req", "-new", *key, "-keyout", "key.pem", "-out", "cert.csr", "-subj", "/CN=localhost")
    with open(os.path.join(folder, "cert.ext"), "w", encoding="utf-8") as file:
        file.write(EXTENSIONS)
    openssl("x509", "-req", "-in", "cert.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "cert.ext", "-out", "cert.pem")
    with open(os.path.join(folder, "both.pem"), "w", encoding="utf-8") as both:
        for name in ("cert.pem", "key.pem"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                both.write(file.read())


def serve_by(way, folder, *arguments, **more):
    """A server that clients reach in the given way; `clouds` is the file they use."""
    if way == "plain":
        return Serve(*arguments, **more)
    certificates(folder)
    config = os.path.join(folder, "front.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write((TLS if way == "tls" else PROXIED).format(folder=folder))
    if way == "tls":
        return Serve(*arguments, config=config, **more)
    return Proxied(folder, *arguments, config=config, **more)


class Proxied(Serve):
    """A server behind haproxy. Its own port never changes, because haproxy's configuration names it."""

    def __init__(self, folder, binary, state, nodes=None, database=None, config=None, port=None):
        super().__init__(binary, state, nodes, database, config, port or free_port())
        self.folder, self.front, self.haproxy = folder, free_port(), None
        self.clouds = os.path.join(folder, "clouds.yaml")
        self.cacert = os.path.join(folder, "ca.pem")

    def start(self, timeout=60):
        line = super().start(timeout)
        behind, self.url = self.url, f"https://127.0.0.1:{self.front}"
        with open(os.path.join(self.state, "clouds.yaml"), encoding="utf-8") as file:
            text = file.read().replace(behind, self.url)
        with open(self.clouds, "w", encoding="utf-8") as file:
            file.write(f"{text}    cacert: {self.cacert}\n")
        if self.haproxy is None:
            self.start_haproxy()
        return line

    def start_haproxy(self):
        config = os.path.join(self.folder, "haproxy.cfg")
        with open(config, "w", encoding="utf-8") as file:
            file.write(HAPROXY.format(port=self.front, behind=self.port, folder=self.folder))
        program = shutil.which("haproxy") or "/usr/sbin/haproxy"
        with open(os.path.join(self.folder, "haproxy.log"), "wb") as log:
            self.haproxy = subprocess.Popen([program, "-db", "-f", config], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{self.front}"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
            if time.monotonic() > deadline or self.haproxy.poll() is not None:
                raise Wrong(f"haproxy does not answer; see {self.folder}/haproxy.log")
            time.sleep(0.1)

    def openrc(self):
        found = super().openrc()
        return {**found, "OS_AUTH_URL": f"{self.url}/identity/v3", "OS_CACERT": self.cacert}

    def away(self):
        super().away()
        if self.haproxy is not None:
            self.haproxy.terminate()
            self.haproxy.wait()
