#!/usr/bin/env python3
"""Two controllers on one PostgreSQL behind haproxy, with simulated hosts as processes.

    scripts/anywhere.py --database URL [--kilonova PROGRAM] [--hosts N] [--boots N]

haproxy sends each request, from users and from hosts, to the other controller than the previous one. Every
operation that waits for a host is requested through it, and the answer is read through it. Then one
controller is killed, and the other one continues alone. No host may be fenced or exit, and the audit must
be clean. Prints the times from POST to ACTIVE with two controllers and with one. Exits with 1 if a check
fails.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

from chaos_compute import COMPUTE
from chaos_stage import Host, Stage, names, register
from stack import Api, Gone, Serve, Wrong, end_tidily, free_port, settle

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOPOLOGY = """
[card.m10]
vendor = "10de"
product = "13bd"
class = "030000"
driver = "nvidia"
exclusive_types = true
types = [{ id = "nvidia-35", name = "GRID M10-0B", available_instances = 8 }]
"""
HOST = """
[[host]]
name = "node%d"
address = "192.0.2.%d"
vcpus = 64
memory_mb = 65536
disk_gb = 1000
traits = ["COMPUTE_NODE", "COMPUTE_ACCELERATORS", "CUSTOM_VGPU_LIVE_MIGRATION"]
card = [{ card = "m10", addresses = ["0000:84:00.0"] }]
devices = { enabled_mdev_types = ["nvidia-35"] }
"""
HAPROXY = """global
    maxconn 2000
defaults
    mode http
    timeout connect 2s
    timeout client 3m
    timeout server 3m
    option redispatch 1
    retries 3
    retry-on conn-failure empty-response
frontend all
    bind 127.0.0.1:{port}
    default_backend controllers
backend controllers
    balance roundrobin
    default-server check inter 300ms fall 2 rise 1 on-marked-down shutdown-sessions
    server a 127.0.0.1:{a}
    server b 127.0.0.1:{b}
"""
# Each action that waits for a host, and the status in which it ends.
STEPS = [
    ({"os-stop": None}, "SHUTOFF"),
    ({"os-start": None}, "ACTIVE"),
    ({"reboot": {"type": "SOFT"}}, "ACTIVE"),
    ({"reboot": {"type": "HARD"}}, "ACTIVE"),
    ({"pause": None}, "PAUSED"),
    ({"unpause": None}, "ACTIVE"),
    ({"suspend": None}, "SUSPENDED"),
    ({"resume": None}, "ACTIVE"),
    ({"rescue": {}}, "RESCUE"),
    ({"unrescue": None}, "ACTIVE"),
    ({"rebuild": {"imageRef": "IMAGE"}}, "ACTIVE"),
    ({"createImage": {"name": "shot", "metadata": {}}}, "ACTIVE"),
    ({"os-migrateLive": {"host": None, "block_migration": "auto"}}, "ACTIVE"),
    ({"migrate": {"host": None}}, "VERIFY_RESIZE"),
    ({"revertResize": None}, "ACTIVE"),
    ({"migrate": {"host": None}}, "VERIFY_RESIZE"),
    ({"confirmResize": None}, "ACTIVE"),
    ({"shelve": None}, "SHELVED_OFFLOADED"),
    ({"unshelve": None}, "ACTIVE"),
    ({"lock": None}, "ACTIVE"),
    ({"unlock": None}, "ACTIVE"),
]


class Cloud:
    """The processes, and the checks that passed."""

    def __init__(self, options, folder):
        self.options, self.folder, self.checks = options, folder, 0
        self.front = f"http://127.0.0.1:{free_port()}"
        self.controllers = [self.controller(name) for name in ("a", "b")]
        self.hosts, self.haproxy, self.api, self.stage = [], None, None, None

    def controller(self, name):
        state = os.path.join(self.folder, name, "state")
        os.makedirs(state, mode=0o700)
        config = os.path.join(self.folder, "kilonova.conf")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"[glance_store]\nfilesystem_store_datadir = {self.folder}/images\n")
        return Serve(os.path.abspath(self.options.kilonova), state, None, self.options.database, config)

    def tick(self, text):
        self.checks += 1
        print(f"  ✓ {text}", flush=True)

    def start(self):
        first, second = self.controllers
        first.start()
        # Besides the database and the images, a further controller needs only this file; it has mode 0600.
        shutil.copy(os.path.join(first.state, "seal.key"), second.state)
        second.start()
        port = self.front.rsplit(":", 1)[1]
        config = os.path.join(self.folder, "haproxy.cfg")
        with open(config, "w", encoding="utf-8") as file:
            file.write(HAPROXY.format(port=port, a=first.port, b=second.port))
        program = shutil.which("haproxy") or "/usr/sbin/haproxy"
        with open(os.path.join(self.folder, "haproxy.log"), "wb") as log:
            self.haproxy = subprocess.Popen([program, "-db", "-f", config], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        self.api = Api(self.front)
        deadline = time.monotonic() + 10
        while self.api.token is None:
            try:
                self.api.login(first.openrc())
            except Gone:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self.tick("two controllers answer behind haproxy")
        first.topology = os.path.join(self.folder, "hosts.toml")
        with open(first.topology, "w", encoding="utf-8") as file:
            file.write(TOPOLOGY + "".join(HOST % (n, n) for n in range(1, self.options.hosts + 1)))
        for name in names(first.topology):
            host = Host(first, name, self.folder)
            host.control = self.front
            host.start()
            self.hosts.append(host)
        register(self.api, len(self.hosts))
        self.tick(f"{len(self.hosts)} hosts register through haproxy")
        self.api.expect(200, "PUT", f"{COMPUTE}/os-quota-sets/{self.project()}",
                        {"quota_set": {"instances": -1, "cores": -1, "ram": -1}})
        self.stage = Stage(self.api, names(first.topology), False)

    def project(self):
        found = self.api.expect(200, "GET", "/identity/v3/projects?name=admin")["projects"]
        return found[0]["id"]

    def body(self, name):
        return {"server": {"name": name, "flavorRef": self.stage.flavors[1], "imageRef": self.stage.image,
                           "networks": "none"}}

    def show(self, server):
        status, _, answer = self.api.ask("GET", f"{COMPUTE}/servers/{server}")
        if status == 404:
            return {"status": "GONE"}
        if status != 200:
            raise Wrong(f"GET {server}: {status} {answer}")
        return answer["server"]

    def wait(self, server, status, seconds=20):
        deadline = time.monotonic() + seconds
        while True:
            shown = self.show(server)
            if shown["status"] == status and not shown.get("OS-EXT-STS:task_state"):
                return shown
            if time.monotonic() > deadline or (shown["status"] == "ERROR" and status != "ERROR"):
                raise Wrong(f"server {server} is {shown['status']}/{shown.get('OS-EXT-STS:task_state')}, not "
                            f"{status}, after {seconds} s: {shown.get('fault')}")
            time.sleep(0.003)

    def boots(self, count, what):
        """Boots servers one after the other and deletes them. Returns the seconds from POST to ACTIVE."""
        took = []
        for number in range(count):
            begun = time.monotonic()
            made = self.api.expect(202, "POST", f"{COMPUTE}/servers", self.body(f"{what}{number}"))
            server = made["server"]["id"]
            self.wait(server, "ACTIVE")
            took.append(time.monotonic() - begun)
            self.api.expect(204, "DELETE", f"{COMPUTE}/servers/{server}")
        settle(self.api)
        took.sort()
        middle, late = took[len(took) // 2], took[min(len(took) - 1, len(took) * 99 // 100)]
        self.tick(f"{count} boots, {what}: POST to ACTIVE {middle * 1000:.0f} ms (median), {late * 1000:.0f} ms (p99)")

    def together(self):
        """Boots a server for each host concurrently."""
        made = [self.api.expect(202, "POST", f"{COMPUTE}/servers", self.body(f"many{n}"))["server"]["id"]
                for n in range(len(self.hosts))]
        for server in made:
            self.wait(server, "ACTIVE")
        self.tick(f"{len(made)} servers boot concurrently")
        for server in made:
            self.api.expect(204, "DELETE", f"{COMPUTE}/servers/{server}")
        for server in made:
            self.wait(server, "GONE")
        self.tick("all of them are deleted")

    def story(self):
        """Every operation on one server, requested and read at alternating controllers."""
        server = self.api.expect(202, "POST", f"{COMPUTE}/servers", self.body("story"))["server"]["id"]
        self.wait(server, "ACTIVE")
        for action, status in STEPS:
            name = next(iter(action))
            if name == "rebuild":
                action = {name: {"imageRef": self.stage.image}}
            code, _, answer = self.api.ask("POST", f"{COMPUTE}/servers/{server}/action", action)
            if not 200 <= code < 300:
                raise Wrong(f"{name}: {code} {answer}")
            self.wait(server, status)
            self.tick(f"{name} ends in {status}")
        for _ in range(4):
            answer = self.api.expect(200, "POST", f"{COMPUTE}/servers/{server}/action", {"os-getConsoleOutput": {}})
            if "output" not in answer:
                raise Wrong(f"no console log: {answer}")
        self.tick("the console log is requested at one controller, and the host replies at another")
        self.api.expect(204, "DELETE", f"{COMPUTE}/servers/{server}")
        self.wait(server, "GONE")
        self.tick("the server is deleted")

    def revoke(self):
        """A token that one controller revokes is refused by both soon after."""
        api = Api(self.front)
        api.login(self.controllers[0].openrc())
        headers = {"X-Subject-Token": api.token}
        for _ in range(4):
            api.expect(200, "GET", f"{COMPUTE}/servers")
        self.api.expect(204, "DELETE", "/identity/v3/auth/tokens", None, headers)
        deadline = time.monotonic() + 10
        refused = 0
        while refused < 4:
            status, _, _ = api.ask("GET", f"{COMPUTE}/servers")
            refused = refused + 1 if status == 401 else 0
            if time.monotonic() > deadline:
                raise Wrong("a revoked token is still accepted after 10 s")
        self.tick("a revoked token is refused by both controllers")

    def notice(self):
        """Waits until haproxy has noticed that a controller is gone: it then also closes the connections of clients."""
        deadline, answers = time.monotonic() + 10, 0
        while answers < 20:
            try:
                self.api.expect(200, "GET", f"{COMPUTE}/flavors")
                answers += 1
            except Gone:
                answers = 0
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def check(self):
        for host in self.hosts:
            host.check()
            with open(host.log, encoding="utf-8", errors="replace") as log:
                lines = [line for line in log if "fenced" in line or "another process has registered" in line]
            if lines:
                raise Wrong(f"{host.name}: {lines[0]}")
        self.tick("no host was fenced")
        for serve in self.controllers:
            with open(serve.log, encoding="utf-8", errors="replace") as log:
                lines = [line for line in log if "panicked" in line or "fenced an earlier agent" in line]
            if lines:
                raise Wrong(f"{serve.log}: {lines[0]}")
        command, code, text = self.controllers[1].doctor()
        if code:
            raise Wrong(f"{' '.join(command)}: exit code {code}:\n{text}")
        self.tick("doctor finds nothing")

    def run(self):
        self.start()
        self.boots(self.options.boots, "two controllers")
        self.together()
        self.story()
        self.revoke()
        self.check()
        self.controllers[0].kill()
        self.notice()
        self.boots(self.options.boots, "with one of two controllers killed")
        self.check()

    def away(self):
        for process in [*self.hosts, *self.controllers]:
            process.kill()
        if self.haproxy is not None:
            self.haproxy.terminate()
            self.haproxy.wait()


def main():
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--database", required=True, help="PostgreSQL URL of an empty database")
    parser.add_argument("--hosts", type=int, default=20, help="number of hosts, each a process (default: 20)")
    parser.add_argument("--boots", type=int, default=30, help="number of boots that are timed (default: 30)")
    parser.add_argument("--counts", help="file to write `passed failed` to")
    options = parser.parse_args()
    begun, failed = time.monotonic(), 1
    folder = tempfile.mkdtemp(prefix="kilonova-anywhere-")
    cloud = Cloud(options, folder)
    try:
        cloud.run()
        failed = 0
        print(f"\nanywhere: {cloud.checks} checks passed in {time.monotonic() - begun:.0f} s")
    except (Wrong, Gone, OSError, KeyError, ValueError) as error:
        print(f"  ✗ {type(error).__name__}: {error}", flush=True)
        for serve in cloud.controllers:
            if serve.starts:
                print(f"\nthe end of {serve.log}:\n{serve.tail()}")
    finally:
        cloud.away()
        if options.counts:
            with open(options.counts, "w", encoding="utf-8") as file:
                file.write(f"{cloud.checks} {failed}\n")
    if failed:
        print(f"anywhere: failed; the files are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
