"""Controllers on one PostgreSQL behind haproxy, for `controllers.py`: the processes and their files.

The configurations are those of `examples/ha`, with this machine's ports in place of the documented addresses.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from chaos_compute import Load
from chaos_stage import Host
from front import certificates
from stack import Api, Gone, Serve, Wrong, free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXAMPLES = os.path.join(ROOT, "examples/ha")
PG_BIN = os.environ.get("KILONOVA_PG_BIN", "/usr/lib/postgresql/15/bin")
DOCUMENTED = 3      # controllers in the examples
HAPROXY = shutil.which("haproxy") or "/usr/sbin/haproxy"


def example(name):
    with open(os.path.join(EXAMPLES, name), encoding="utf-8") as file:
        return file.read()


def replace(text, old, new):
    """Replaces what an example must contain."""
    if old not in text:
        raise Wrong(f"the example has no {old!r} any more")
    return text.replace(old, new)


class Postgres:
    """A separate PostgreSQL on a unix socket, with durable commits."""

    def __init__(self):
        self.folder = subprocess.run(["mktemp", "-d", "/tmp/kilonova-pg.XXXXXX"], text=True, check=True,
                                     stdout=subprocess.PIPE).stdout.strip()
        self.data, self.process = os.path.join(self.folder, "data"), None
        self.user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        os.chmod(self.folder, 0o755)
        if self.user:
            shutil.chown(self.folder, "postgres")
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def run(self, program, *words):
        done = subprocess.run([*self.user, os.path.join(PG_BIN, program), *words], cwd="/", text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise Wrong(f"{program}: {done.stdout}")

    def start(self):
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c max_connections=200"
        self.run("pg_ctl", "-D", self.data, "-l", os.path.join(self.data, "server.log"), "-w", "-t", "60",
                 "-o", options, "start")

    def stop(self, mode):
        """`immediate` kills every process immediately, like a crash."""
        if os.path.exists(os.path.join(self.data, "postmaster.pid")):
            self.run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def database(self, name):
        url = f"postgresql:///postgres?user=postgres&host={self.folder}"
        subprocess.run([os.path.join(PG_BIN, "psql"), "-q", "-X", "-d", url, "-c", f"CREATE DATABASE {name}"], check=True)
        return url.replace("///postgres?", f"///{name}?")

    def remove(self):
        self.stop("immediate")
        shutil.rmtree(self.folder)


def joins(binary):
    """True if this program's simulated hosts can join by a token."""
    done = subprocess.run([binary, "node", "--help"], text=True, check=True, stdout=subprocess.PIPE)
    return "--join" in done.stdout


class Controller(Serve):
    """One of the controllers; its files are in a separate folder."""

    def __init__(self, number, binary, folder, cloud):
        self.number, self.cloud = number, cloud
        home = os.path.join(folder, f"controller{number}")
        os.makedirs(os.path.join(home, "state"), mode=0o700)
        super().__init__(binary, os.path.join(home, "state"), None, cloud.database, os.path.join(home, "kilonova.conf"))
        self.hosts_port = free_port()

    def configure(self, more):
        """The example's file with this machine's addresses."""
        text = example("kilonova.conf")
        here = f"127.0.0.1:{self.cloud.hosts_port}"
        for old, new in [
                ("/var/lib/kilonova", self.state), ("listen = 192.0.2.11:8774", f"listen = 127.0.0.1:{self.port}"),
                ("https://cloud.example\n", f"{self.cloud.url}\n"),
                ("192.0.2.11, 192.0.2.12, 192.0.2.13", "127.0.0.1"),
                ("listen = 192.0.2.11:8775", f"listen = 127.0.0.1:{self.hosts_port}{self.cloud.token_option}"),
                ("cloud.example, 192.0.2.10", "127.0.0.1"), ("https://cloud.example:8775", f"https://{here}")]:
            text = replace(text, old, new)
        text = re.sub(r"(?m)^connection = .*$", lambda _: f"connection = {self.database}", text)
        # The test's PostgreSQL has a unix socket, where TLS is not possible.
        text = re.sub(r"(?m)^connection_parameters = .*\n", "", text)
        text = replace(text, "[DEFAULT]\n", "[DEFAULT]\n" + "".join(f"{line}\n" for line in more))
        # The directory that the machines share.
        text += f"\n[glance_store]\nfilesystem_store_datadir = {self.cloud.images}\n"
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text)

    def signal(self, number):
        self.process.send_signal(number)

    def ready(self):
        """True if it reports that it accepts requests."""
        try:
            return Api(f"http://127.0.0.1:{self.port}", timeout=5).ask("GET", "/readyz")[0] == 200
        except Gone:
            return False

    def await_ready(self, seconds=60):
        deadline = time.monotonic() + seconds
        while not self.ready():
            if time.monotonic() > deadline or not self.running():
                raise Wrong(f"controller {self.number} is not ready after {seconds} s:\n{self.tail()}")
            time.sleep(0.05)

    def logged(self, words):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return words in file.read()


class Cloud:
    """The controllers, haproxy, and how clients reach them."""

    def __init__(self, binary, folder, database, options=(), count=2):
        self.folder, self.database = folder, database
        # An earlier program's simulated hosts cannot join, and use the shared token on the users' port.
        self.hosts_join = joins(binary)
        self.token_option = "" if self.hosts_join else "\ntoken = true"
        self.front, self.hosts_port, self.haproxy = free_port(), free_port(), None
        self.url, self.cacert = f"https://127.0.0.1:{self.front}", os.path.join(folder, "ca.pem")
        self.images = os.path.join(folder, "images")
        os.mkdir(self.images, mode=0o700)
        certificates(folder)
        self.controllers = [Controller(number, binary, folder, self) for number in range(1, count + 1)]
        self.socket = os.path.join(folder, "haproxy.sock")
        for one in self.controllers:
            one.configure(options)

    def start(self):
        """Starts the first controller, gives the others its sealing key, and starts all of them and haproxy."""
        first = self.controllers[0]
        first.start()
        for other in self.controllers[1:]:
            # It has mode 0600.
            shutil.copy(os.path.join(first.state, "seal.key"), other.state)
            other.start()
        self.balance()
        self.up(len(self.controllers))

    def configuration(self):
        """The example's configuration of haproxy with this machine's ports."""
        text = example("haproxy.cfg")
        text = replace(text, "global\n", f"global\n    stats socket {self.socket} level admin\n")
        # The limit of open files of a test's shell is lower.
        text = replace(text, "maxconn 40000", "maxconn 2000")
        text = replace(text, "bind :443 ssl crt /etc/haproxy/cloud.pem",
                       f"bind 127.0.0.1:{self.front} ssl crt {self.folder}/both.pem")
        text = replace(text, "bind :8775", f"bind 127.0.0.1:{self.hosts_port}")
        for one in self.controllers:
            text = replace(text, f"192.0.2.1{one.number}:8774", f"127.0.0.1:{one.port}")
            text = replace(text, f"192.0.2.1{one.number}:8775", f"127.0.0.1:{one.hosts_port}")
        absent = [rf"(?m)^.* 192\.0\.2\.1{number}:.*\n" for number in range(len(self.controllers) + 1, DOCUMENTED + 1)]
        for pattern in absent:
            text = re.sub(pattern, "", text)
        path = os.path.join(self.folder, "haproxy.cfg")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def balance(self):
        path = self.configuration()
        done = subprocess.run([HAPROXY, "-c", "-f", path], text=True, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode:
            raise Wrong(f"haproxy refuses its configuration: {done.stdout}")
        with open(os.path.join(self.folder, "haproxy.log"), "wb") as log:
            self.haproxy = subprocess.Popen([HAPROXY, "-db", "-f", path], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ask_haproxy(self, command):
        """Sends a command to haproxy's own socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(self.socket)
            connection.sendall(f"{command}\n".encode())
            answer = b""
            while some := connection.recv(65536):
                answer += some
        return answer.decode()

    def servers_up(self):
        """The numbers of controllers that haproxy uses for users and for hosts."""
        try:
            lines = [line.split(",") for line in self.ask_haproxy("show stat").splitlines()]
        except OSError:
            return 0, 0
        up = [line[0] for line in lines if len(line) > 17 and line[1].startswith("controller") and line[17].startswith("UP")]
        return up.count("controllers"), up.count("hosts")

    def up(self, count, seconds=30):
        """Waits until haproxy uses that many controllers."""
        deadline = time.monotonic() + seconds
        while self.servers_up() != (count, count):
            if time.monotonic() > deadline or self.haproxy.poll() is not None:
                raise Wrong(f"haproxy uses {self.servers_up()} controllers for users and for hosts, expected {count}; see "
                            f"{self.folder}/haproxy.log")
            time.sleep(0.1)

    def cut(self):
        """Makes haproxy close the connections of users and of hosts to a controller."""
        for number in range(1, len(self.controllers) + 1):
            for backend in ("controllers", "hosts"):
                self.ask_haproxy(f"shutdown sessions server {backend}/controller{number}")

    def api(self):
        api = Patient(self.url, cacert=self.cacert)
        api.login(self.controllers[0].openrc())
        return api

    def end(self):
        for one in self.controllers:
            if one.running():
                one.signal(signal.SIGCONT)
            one.kill()
        if self.haproxy is not None:
            self.haproxy.terminate()
            self.haproxy.wait()


class Patient(Api):
    """A client for which 503 with `Retry-After` is an outage, not an answer."""

    def clone(self):
        return Patient(self.url, self.token, self.timeout, self.cacert)

    def ask(self, method, path, body=None, headers=None):
        status, got, answer = super().ask(method, path, body, headers)
        if status == 503 and "retry-after" in got:
            raise Gone(f"503: {answer}")
        return status, got, answer


class Steady(Load):
    """A load that continues after lost answers, and records the times of the losses."""

    def __init__(self, *arguments):
        self.lost = []
        super().__init__(*arguments)

    def run(self, connect, step):
        connection = connect()
        try:
            while not self.over.is_set():
                try:
                    step(connection)
                except Gone as error:
                    self.lost.append((time.monotonic(), str(error)))
                    connection.close()
                    time.sleep(0.1)
        except Exception as error:  # noqa: BLE001 - raised again by `join`
            self.wrong.append(error)
        finally:
            connection.close()

    def lost_outside(self, windows):
        """Answers that were lost without an injected failure."""
        return [why for at, why in self.lost if not any(begin <= at <= end for begin, end in windows)]


class BalancedHost(Host):
    """A simulated host that joins and reaches the controllers through haproxy's port for hosts."""

    def __init__(self, cloud, name, topology):
        first = cloud.controllers[0]
        first.topology = topology
        super().__init__(first, name, cloud.folder)
        self.cloud, self.token = cloud, None

    def enroll(self):
        """A join token for this host, as an administrator gets it."""
        credentials = {**os.environ, **self.serve.openrc(), "OS_CACERT": self.cloud.cacert}
        command = [self.serve.binary, "node", "enroll", "--host", self.name, "--format", "json"]
        done = subprocess.run(command, env=credentials, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        if done.returncode:
            raise Wrong(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)["token"]

    def start(self):
        command = [self.program or self.serve.binary, "node", "--host", self.name, "--nodes", self.topology,
                   "--state-dir", self.state]
        if self.cloud.hosts_join:
            self.token = self.token or self.enroll()
            command += ["--control", f"https://127.0.0.1:{self.cloud.hosts_port}", "--join", self.token]
        else:
            command += ["--control", self.cloud.url, "--cacert", self.cloud.cacert,
                        "--token-file", os.path.join(self.serve.state, "node.token")]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                                            start_new_session=True)
