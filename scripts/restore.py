#!/usr/bin/env python3
"""Restores an older dump of a running cloud's database, while the hosts are ahead of it.

    scripts/restore.py [--kilonova PROGRAM] [--database URL]

The database is dumped under a load of boots and deletions, by the commands of docs/high-availability.md. Then more
servers are created, deleted, stopped and moved. The controller is stopped, the dump is restored, and the controller
starts. No guest that ran may be touched, whether a row names it or not; no server may have two guests, and one that was
deleted or moved is in ERROR on its host, which creates no empty guest; the audit must be clean; `kilonova doctor` must
report each guest that no row names; and new servers must boot.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

import chaos_rest
from anywhere import HOST, TOPOLOGY
from chaos_compute import COMPUTE
from chaos_compute import HOST as ON
from chaos_stage import Host, Stage, names, register
from failover import Load
from stack import Api, Gone, Serve, Wrong, end_tidily, settle

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PG_BIN = os.environ.get("KILONOVA_PG_BIN", "/usr/lib/postgresql/15/bin")
HOSTS = 4
CALM = 15           # seconds in which a host would have removed what it must keep


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120, check=False)
    if done.returncode:
        raise Wrong(f"{' '.join(command)}: exit code {done.returncode}: {done.stdout}")


class Sqlite:
    """Dump and restoration of the database in the state directory."""

    def __init__(self, state, folder):
        self.file, self.copy = os.path.join(state, "kilonova.db"), os.path.join(folder, "copy.db")

    def dump(self):
        run("sqlite3", self.file, f".backup {self.copy}")

    def restore(self):
        for ending in ("", "-wal", "-shm"):
            if os.path.exists(self.file + ending):
                os.remove(self.file + ending)
        shutil.copy(self.copy, self.file)


class Postgres:
    """Dump and restoration of a PostgreSQL database."""

    def __init__(self, url, folder):
        parts = urllib.parse.urlsplit(url)
        for name, values in urllib.parse.parse_qs(parts.query).items():
            os.environ[f"PG{name.upper()}"] = values[0]
        self.url, self.name, self.file = url, parts.path.lstrip("/"), os.path.join(folder, "kilonova.dump")

    def dump(self):
        run(f"{PG_BIN}/pg_dump", "--format=custom", f"--file={self.file}", self.url)

    def restore(self):
        run(f"{PG_BIN}/dropdb", self.name)
        run(f"{PG_BIN}/createdb", self.name)
        run(f"{PG_BIN}/pg_restore", "--no-owner", f"--role={os.environ['PGUSER']}", f"--dbname={self.name}", self.file)


class Restore:
    """The processes, what was done before and after the dump, and the checks that passed."""

    def __init__(self, options, folder):
        self.options, self.folder, self.checks = options, folder, 0
        state = os.path.join(folder, "state")
        os.mkdir(state, mode=0o700)
        self.backup = Postgres(options.database, folder) if options.database else Sqlite(state, folder)
        self.serve = Serve(os.path.abspath(options.kilonova), state, None, options.database)
        self.serve.topology = os.path.join(folder, "hosts.toml")
        with open(self.serve.topology, "w", encoding="utf-8") as file:
            file.write(TOPOLOGY + "".join(HOST % (n, n) for n in range(1, HOSTS + 1)))
        self.hosts = [Host(self.serve, name, folder) for name in names(self.serve.topology)]
        self.folders = [host.state for host in self.hosts]

    def tick(self, text):
        self.checks += 1
        print(f"  ✓ {text}", flush=True)

    def start(self):
        self.serve.start()
        self.api = Api(self.serve.url)
        project = self.api.login(self.serve.openrc())["project"]["id"]
        for host in self.hosts:
            host.start()
        register(self.api, len(self.hosts))
        self.stage = Stage(self.api, [host.name for host in self.hosts], False)
        self.api.expect(200, "PUT", f"{COMPUTE}/os-quota-sets/{project}",
                        {"quota_set": {"instances": -1, "cores": -1, "ram": -1}},
                        {"OpenStack-API-Version": "compute 2.56"})

    def boot(self, name, count):
        """Servers, every second one with a vGPU, once they are active."""
        made = [self.api.expect(202, "POST", f"{COMPUTE}/servers", {"server": {
            "name": f"{name}{number}", "networks": "none", "imageRef": self.stage.image,
            "flavorRef": self.stage.flavors[number % 2]}})["server"]["id"] for number in range(count)]
        self.wait(f"{name} servers are active", lambda: [
            f"{server} is {shown['status']}: {shown.get('fault')}" for server in made
            if (shown := self.show(server))["status"] != "ACTIVE"])
        return made

    def show(self, server):
        return self.api.expect(200, "GET", f"{COMPUTE}/servers/{server}")["server"]

    @staticmethod
    def wait(what, complaints, seconds=60):
        deadline = time.monotonic() + seconds
        while found := complaints():
            if time.monotonic() > deadline:
                raise Wrong(f"{what}: not after {seconds} s: {found}")
            time.sleep(0.1)

    def guests(self):
        """(host, server) of the defined and of the running guests."""
        return {key for key in chaos_rest.domains(self.folders)}, set(chaos_rest.named(self.folders, "running"))

    def prepare(self):
        """Servers from before the dump, a dump under load, and changes after it."""
        kept, deleted = self.boot("kept", 6), self.boot("deleted", 4)
        stopped, moved = self.boot("stopped", 2), self.boot("moved", 2)
        load = Load(self.api, self.stage, self.stage.flavors[0])
        try:
            load.wait(60)
            self.backup.dump()
            load.wait(60)
        finally:
            load.over.set()
        load.join()
        self.tick(f"a dump under load: {load.asked} requests")
        # In this order no guest gets a device that the dump gives to another server.
        new = self.boot("new", 6)
        settle(self.api)
        for server in moved:
            self.api.expect(202, "POST", f"{COMPUTE}/servers/{server}/action", {"migrate": None})
        settle(self.api)
        for server in moved:
            self.api.expect(204, "POST", f"{COMPUTE}/servers/{server}/action", {"confirmResize": None})
        for server in deleted:
            self.api.expect(204, "DELETE", f"{COMPUTE}/servers/{server}")
        for server in stopped:
            self.api.expect(202, "POST", f"{COMPUTE}/servers/{server}/action", {"os-stop": None})
        settle(self.api)
        self.wait("no guest of a deleted server is left",
                  lambda: [key for key in self.guests()[0] if key[1] in deleted])
        self.kept, self.deleted, self.stopped, self.moved, self.new = kept, deleted, stopped, moved, new
        self.before = self.guests()
        self.devices = chaos_rest.domains(self.folders)

    def restore(self):
        code, took = self.serve.stop()
        if code:
            raise Wrong(f"SIGTERM: exit code {code} after {took:.1f} s")
        self.backup.restore()
        self.serve.start()
        self.api.close()
        self.api = Api(self.serve.url)
        self.api.login(self.serve.openrc())
        self.tick("the controller starts on the restored database")

    def check(self):
        servers = settle(self.api, timeout=90)
        time.sleep(CALM)
        servers = settle(self.api, timeout=90)
        for host in self.hosts:
            host.check()
        defined, running = self.guests()
        unknown = {key for key in self.before[0] if key[1] not in servers}
        if not {server for _, server in unknown} >= set(self.new):
            raise Wrong("a server that was created after the dump is in the restored database")
        if lost := unknown - defined | (unknown & self.before[1]) - running:
            raise Wrong(f"guests that no row names were removed or stopped: {lost}")
        now = chaos_rest.domains(self.folders)
        if changed := [key for key in unknown if now[key] != self.devices[key]]:
            raise Wrong(f"guests that no row names have other devices than before: {changed}")
        self.tick(f"{len(unknown)} guests that no row names keep running with their devices")
        twice = [server for _, server in defined]
        if len(twice) != len(set(twice)):
            raise Wrong("a server has guests on two hosts")
        known = {key for key in self.before[1] if key[1] in self.kept}
        if lost := known - running:
            raise Wrong(f"guests of unchanged servers do not run: {lost}")
        self.tick(f"{len(known)} guests of servers in the dump keep running")
        again = {(servers[server][ON], server) for server in self.stopped}
        if wrong := again - running or [key for key in again if servers[key[1]]["status"] != "ACTIVE"]:
            raise Wrong(f"servers in the dump differ from it: {wrong}")
        self.tick("servers that were stopped after the dump are as in the dump, with a guest")
        left = {(servers[server][ON], server) for server in self.deleted + self.moved}
        if wrong := left & defined or [key for key in left if servers[key[1]]["status"] != "ERROR"]:
            raise Wrong(f"servers whose guest was removed have an empty one, or are not in ERROR: {wrong}")
        if lost := [server for server in self.moved if server not in {one for _, one in running}]:
            raise Wrong(f"the guests of moved servers do not run on their other hosts: {lost}")
        self.tick("servers that were deleted or moved after the dump are in ERROR, without an empty guest")
        self.doctor(unknown)
        self.boot("after", 6)
        self.tick("new servers boot, with devices too")
        self.doctor(unknown)

    def doctor(self, unknown):
        """The ledger is clean, and the findings name each guest that no row names, on its host."""
        command = [self.serve.binary, "doctor", "--state-dir", self.serve.state, "--format", "json"]
        command += ["--database", self.options.database] if self.options.database else []
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        report = json.loads(done.stdout)
        if not report["clean"]:
            raise Wrong(f"the audit is not clean: {done.stdout}")
        found = [one["what"] for one in report["findings"]]
        for name in {host for host, _ in unknown}:
            count = sum(host == name for host, _ in unknown)
            if not any(f"host {name} has {count} guest" in what for what in found):
                raise Wrong(f"doctor does not report the {count} guests on {name} that no row names: {found}")
        for server in self.moved:
            if not any(f"guest of server {server}, which is on host" in what for what in found):
                raise Wrong(f"doctor does not report the guest of server {server} on another host: {found}")
        self.tick("the audit is clean, and doctor reports all guests that are missing in the database")

    def end(self):
        for process in [*self.hosts, self.serve]:
            process.kill()


def main():
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--database", help="PostgreSQL URL of an empty database (default: SQLite)")
    parser.add_argument("--counts", help="file to write `passed failed` to")
    options = parser.parse_args()
    begun, failed = time.monotonic(), 1
    folder = tempfile.mkdtemp(prefix="kilonova-restore-")
    case = Restore(options, folder)
    print(f"restore: {'PostgreSQL' if options.database else 'SQLite'}", flush=True)
    try:
        for step in (case.start, case.prepare, case.restore, case.check):
            step()
        failed = 0
        print(f"restore: {case.checks} checks passed; {time.monotonic() - begun:.0f} s")
    except (Wrong, Gone, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
        print(f"\n  ✗ {type(error).__name__}: {error}", flush=True)
        if case.serve.starts:
            print(f"\nthe end of kilonova's log ({case.serve.log}):\n{case.serve.tail()}")
    finally:
        case.end()
        if options.counts:
            with open(options.counts, "w", encoding="utf-8") as file:
                file.write(f"{case.checks} {failed}\n")
    if failed:
        print(f"restore: failed; the files are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
