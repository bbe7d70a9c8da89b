#!/usr/bin/env python3
"""Upgrades a Kilonova that is killed in the middle of every operation.

    scripts/upgrade.py OLD [--kilonova NEW] [--database URL] [--copy-to URL] [--keep]

OLD and NEW are `kilonova` programs. OLD runs with simulated hosts that hold operations at every step
(upgrade_cases.py, upgrade_hosts.py); when each is where it should be, everything is killed with -9. NEW
starts on the same state directory and database; hosts with a process of their own run OLD until all
operations have ended, as agents are upgraded after the controller. Every operation must end as upstream would end it,
with the outcome in its history; the audit must be clean; each guest must have the devices and addresses
that the ledger assigns to its server; earlier resources, tokens and histories must be unchanged; and
once all servers are deleted, nothing may be left. With --copy-to, NEW copies the database of the killed cloud
there (`sqlite`: into the state directory) and starts on the copy; OLD may then be the same program. Exits with 1 if
a check fails.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import chaos_rest
from chaos_compute import COMPUTE, HOST, IMAGES
from chaos_stage import declare, register
from stack import RESTING, Api, Gone, Serve, Wrong, end_tidily, settle
from upgrade_cases import cases, ended, path
from upgrade_client import Client
from upgrade_hosts import APART, FAILS_AFTER, HELD, Apart, Relay, named, topology

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PREPARE = """[DEFAULT]
reclaim_instance_interval = 3600
shelved_poll_interval = 0
shelved_offload_time = -1
"""
EPOCHS = "SELECT host, epoch FROM hosts"
OPEN = "SELECT open_subject, kind, step FROM operations WHERE outcome = 'open'"


class Upgrade:
    """A run: the processes, the cases, and the checks that passed."""

    def __init__(self, options, folder):
        self.options, self.folder, self.checks = options, folder, 0
        state = os.path.join(folder, "state")
        os.mkdir(state, mode=0o700)
        self.config = os.path.join(folder, "kilonova.conf")
        self.serve = Serve(options.old, state, None, options.database, self.config)
        self.serve.topology = None
        self.inside = [host for host in HELD if host not in APART]
        self.apart = {host: Apart(self.serve, host, folder) for host in APART}
        self.cases = cases()
        self.ledger = chaos_rest.Ledger(state, options.database)
        self.folders = [os.path.join(state, "nodes")] + [host.state for host in self.apart.values()]
        self.relay = self.client = None

    def tick(self, text):
        self.checks += 1
        print(f"  ✓ {text}", flush=True)

    def case(self, name):
        return next(case for case in self.cases if case.name == name)

    def start(self, held, offload):
        """Starts the controller and all hosts."""
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(PREPARE.replace("-1", offload))
        self.serve.nodes = topology(os.path.join(self.folder, "inside.toml"), self.inside, held)
        self.serve.start()
        for host in self.apart.values():
            host.begin(held)

    def kill(self):
        for process in [self.serve, *self.apart.values()]:
            process.kill()
        if self.client:
            self.client.api.close()

    def wait(self, what, complaints, seconds=60):
        """Waits until there are no complaints."""
        deadline = time.monotonic() + seconds
        while found := complaints():
            if time.monotonic() > deadline:
                raise Wrong(f"{what}: after {seconds} s, {len(found)} of them wrong:\n    " + "\n    ".join(found))
            time.sleep(0.1)
        self.tick(what)

    def prepare(self):
        """Brings each server into the state in which its operation is requested."""
        self.start(False, "-1")
        api = Api(self.serve.url)
        api.login(self.serve.openrc())
        register(api, len(HELD))
        self.client = Client(api)
        self.client.equip(HELD)
        made = [case for case in self.cases if not case.creates()]
        for case in made:
            self.client.create(case)
        turn = 0
        while waiting := [case for case in made if len(case.before) >= turn]:
            settle(api)
            for case in waiting:
                if len(case.before) > turn:
                    body = case.before[turn]
                    self.client.request(case, body(self.client, case) if callable(body) else body)
            turn += 1
        servers = api.servers()
        wrong = [case.name for case in made if servers[case.server]["status"] == "ERROR"]
        if wrong:
            raise Wrong(f"these servers were in ERROR before any operation was held: {', '.join(wrong)}")
        self.kill()
        self.tick(f"{len(made)} servers are prepared")

    def hold(self):
        """Requests every operation and waits until each is at its step; then kills everything."""
        self.serve.start()      # for its URL, which the relay needs
        self.serve.kill()
        self.relay = self.apart["mute"].relay = Relay(self.serve)
        registered = self.epochs()
        self.start(True, "0")
        self.wait("all hosts run with their delays", lambda: self.unregistered(registered))
        self.apart["dead"].kill()
        declare(self.client.api, "dead", True)
        self.begin("before mute")
        time.sleep(FAILS_AFTER / 2000)
        self.relay.mute = True
        self.apart["gone"].kill()
        self.begin("last", "deleted at once")
        lost = [self.case(name) for name in ("live, aborted", "live, both hosts lost", "live, guest lost")]
        self.wait("the guests that will be lost are being migrated",
                  lambda: self.elsewhere(lost, "live-migration transfer"))
        self.begin("after the others")
        for host in ("leaver", "ferry", "shore", "loser"):
            self.apart[host].kill()
        aborted, _, guest_lost = lost
        self.client.send(aborted, "DELETE", f"{path(aborted)}/migrations/{self.client.migration(aborted)}")
        declare(self.client.api, "ferry", True)
        for mark in chaos_rest.glob.glob(f"{self.apart['loser'].state}/**/running/{guest_lost.server}", recursive=True):
            os.remove(mark)
        self.apart["loser"].start()
        self.wait("every operation is held at its step", lambda: self.elsewhere(self.cases))
        self.kept = self.client.kept()
        self.histories = {case.name: self.client.history(case) for case in self.cases}
        if self.options.copy_to:
            self.refuse_copy("while a controller runs")
        self.kill()
        self.relay.close()

    def copy_database(self):
        """Runs `kilonova database copy`. Returns its exit code, standard output and standard error."""
        here = f"sqlite:///{self.serve.state}/kilonova.db"
        to = here if self.options.copy_to == "sqlite" else self.options.copy_to
        command = [self.options.kilonova, "database", "copy", "--from", self.options.database or here, "--to", to,
                   "--format", "json"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=120, check=False)
        return done.returncode, done.stdout, done.stderr

    def refuse_copy(self, when):
        code, output, why = self.copy_database()
        if code != 2 or output:
            raise Wrong(f"a copy {when} is not refused: exit code {code}: {output}{why}")
        self.tick(f"a copy {when} is refused: {why.strip()[:100]}")

    def copy(self):
        """Copies the database of the killed cloud, which then continues on the copy."""
        begun = time.monotonic()
        code, output, why = self.copy_database()
        if code != 0:
            raise Wrong(f"database copy: exit code {code}: {output}{why}")
        took, report = time.monotonic() - begun, json.loads(output)
        held = sum(table["rows"] > 0 for table in report["tables"])
        self.tick(f"{report['rows']} rows of {held} tables ({len(report['tables'])} with the empty ones) are copied in "
                  f"{took:.1f} s")
        self.refuse_copy("into a database that is not empty")
        # The old database must not be used any more.
        if self.options.database is None:
            os.rename(self.ledger.file, f"{self.ledger.file}.old")
        self.serve.database = None if self.options.copy_to == "sqlite" else self.options.copy_to
        self.ledger = chaos_rest.Ledger(self.serve.state, self.serve.database)

    def begin(self, *moments):
        for case in self.cases:
            if case.when in moments and case.ask is not None:
                self.client.begin(case)
                if case.when == "deleted at once":
                    self.delete_while_building(case)

    def delete_while_building(self, case):
        """Deletes a server when its host has begun to build it: a host that has not received it has nothing to do."""
        deadline = time.monotonic() + 60
        while (named(case.host), case.server) not in set(chaos_rest.named(self.folders, "notes")):
            if time.monotonic() > deadline:
                raise Wrong(f"{case.name}: {case.host} has not begun after 60 s")
            time.sleep(0.02)
        self.client.request(case, {"forceDelete": None})

    def epochs(self):
        """The number of registrations of each host."""
        return {host: int(epoch) for host, epoch in self.ledger.query(EPOCHS)}

    def unregistered(self, before):
        """Complaints about hosts that have not registered since."""
        return [f"{host} has not registered" for host, epoch in self.epochs().items() if epoch == before.get(host)]

    def elsewhere(self, cases, step=None):
        """Complaints about operations that are not at the expected step."""
        is_at = {server: f"{kind} {step}" for server, kind, step in self.ledger.query(OPEN)}
        histories = chaos_rest.histories(self.ledger)
        complaints = []
        for case in cases:
            wanted = step or case.held
            if " " in wanted:
                fits = is_at.get(case.server) == wanted
            else:
                fits = not wanted or any(kind == wanted for kind, _, _ in histories.get(case.server, []))
            if not fits:
                complaints.append(f"{case.name} is at {is_at.get(case.server)}, expected {wanted}")
        return complaints

    def upgrade(self):
        """Starts the new build, and checks that every operation ends."""
        self.serve.binary = self.options.kilonova
        self.apart["mute"].relay = None
        for host in self.apart.values():
            host.program = self.options.old
        begun = time.monotonic()
        self.start(False, "0")
        print(f"  the new build is ready after {time.monotonic() - begun:.1f} s", flush=True)
        for host in ("dead", "ferry"):
            declare(self.client.api, host, False)
        self.wait("no operation is open", lambda: [str(row) for row in self.ledger.query(chaos_rest.OPEN)], 90)

    def check(self):
        api = self.client.api
        servers = api.servers()
        complaints = [f"{case.name}: {why}" for case in self.cases if (why := ended(case, servers.get(case.server)))]
        complaints += self.outcomes()
        if complaints:
            raise Wrong("not as upstream ends it:\n    " + "\n    ".join(complaints))
        for case in self.cases:
            self.tick(f"{case.name}: {case.held or 'nothing'}, then {case.status} on {case.ends_on}")
        self.guests()
        for case in self.cases:
            if case.image and case.outcome == "done":
                image = api.expect(200, "GET", f"{IMAGES}/{case.image}")
                if image["status"] != "active":
                    raise Wrong(f"{case.name}: its image is {image['status']}")
        self.unchanged()
        self.audit("with all operations ended")

    def outcomes(self):
        """Complaints about the recorded ends of the interrupted operations."""
        histories, complaints = chaos_rest.histories(self.ledger), []
        for case in self.cases:
            kind = case.held.partition(" ")[0]
            ends = [end for name, _, end in histories.get(case.server, []) if name == kind][:1]
            if kind and not set(ends) & set(case.outcome.split("|")):
                complaints.append(f"{case.name}: {kind} ended {ends}, expected {case.outcome}")
        return complaints

    def addresses(self):
        """Complaints about guests' interfaces and ports."""
        ports = [port for port in self.client.api.expect(200, "GET", "/network/v2.0/ports")["ports"]
                 if port["device_owner"].startswith("compute:")]
        servers, complaints, wanted = self.client.api.servers(), [], {}
        for port in ports:
            row = servers.get(port["device_id"])
            if row is None:
                complaints.append(f"port {port['id']} belongs to {port['device_id']}, which does not exist")
            elif row[HOST] and port["binding:host_id"] != row[HOST]:
                complaints.append(f"a port of {row['name']} is bound to {port['binding:host_id']}, not {row[HOST]}")
            wanted.setdefault(port["device_id"], set()).add(port["mac_address"])
        for (host, server), macs in interfaces(self.folders).items():
            row = servers.get(server)
            if row and row[HOST] == host and row["status"] in RESTING and macs != wanted.get(server, set()):
                complaints.append(f"{row['name']} has the interfaces {macs}, expected {wanted.get(server)}")
        return complaints

    def unchanged(self):
        """Checks that resources and histories are as before the upgrade."""
        before, after = self.kept, self.client.kept()
        # A server that is deleted, or for which no host was found, keeps no port.
        gone = {case.server for case in self.cases if case.status == "gone" or "create clear" in case.held}
        for key, row in before.items():
            if row.get("device_id") in gone:
                continue
            if after.get(key) != row:
                raise Wrong(f"{key[0]} {key[1]} was {row}, is {after.get(key)}")
        self.tick(f"{len(before)} resources are unchanged")
        for case in self.cases:
            lost = self.histories[case.name] - self.client.history(case)
            if lost:
                raise Wrong(f"{case.name}: lost from its history: {lost}")
        self.tick("every accepted action is in the history")

    def audit(self, when):
        _, code, output = self.serve.doctor()
        if code != 0:
            raise Wrong(f"the audit {when} is not clean (exit code {code}):\n{output}")
        self.tick(f"the audit is clean {when}")

    def upgrade_hosts(self):
        """Restarts the hosts in separate processes with the new build; their guests must stay unchanged."""
        registered = {host: epoch for host, epoch in self.epochs().items() if host in self.apart}
        for host in self.apart.values():
            host.kill()
            host.program = None
            host.begin(False)
        self.wait("the hosts in separate processes run the new build", lambda: self.unregistered(registered))
        self.guests()
        self.audit("with all hosts upgraded")

    def guests(self):
        self.wait("each guest has exactly the devices of its server", lambda: chaos_rest.guests(
            self.client.api, self.ledger, self.folders, {self.case("reset").server}))
        self.wait("each guest has exactly the addresses of its server", self.addresses)

    def empty(self):
        """Deletes everything, and checks that nothing is used any more."""
        api = self.client.api
        for server in api.servers():
            api.expect(202, "POST", f"{COMPUTE}/servers/{server}/action", {"forceDelete": None})
        self.wait("all servers are deleted", lambda: list(api.servers()))
        for provider in api.expect(200, "GET", "/placement/resource_providers")["resource_providers"]:
            usages = api.expect(200, "GET", f"/placement/resource_providers/{provider['uuid']}/usages")["usages"]
            if any(usages.values()):
                raise Wrong(f"no server is left, but {provider['name']} has {usages} used")
        if arqs := api.expect(200, "GET", "/accelerator/v2/accelerator_requests")["arqs"]:
            raise Wrong(f"no server is left, but {len(arqs)} accelerator request(s) are: {arqs[0]}")
        kinds = ("domains", "running", "saved", "incoming", "left", "mdevs", "snapshots", "notes")
        self.wait("no guest, device or file is left on a host", lambda: [
            f"{host} has {kind}/{name}" for kind in kinds for host, name in chaos_rest.named(self.folders, kind)])
        self.wait("no document is left", lambda: [str(row) for row in self.ledger.query(chaos_rest.DOCUMENTS)])
        self.audit("with all servers deleted")
        code, took = self.serve.stop()
        if code != 0:
            raise Wrong(f"SIGTERM: exit code {code} after {took:.1f} s")


def interfaces(folders):
    """The MAC addresses of each guest, by host and server."""
    found = {}
    for base in folders:
        for file in chaos_rest.glob.glob(f"{base}/**/domains/*.xml", recursive=True):
            host = os.path.basename(os.path.dirname(os.path.dirname(file)))
            with open(file, encoding="utf-8") as text:
                macs = re.findall(r"<mac address='([^']*)'", text.read())
            found[host, os.path.basename(file)[:-4]] = set(macs)
    return found


def main():
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="the program that is upgraded")
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"),
                        help="the program that takes over")
    parser.add_argument("--database", help="PostgreSQL URL of an empty database (default: SQLite)")
    parser.add_argument("--copy-to", metavar="URL", help="copy the database there, and continue with the copy (sqlite: in the "
                        "state directory)")
    parser.add_argument("--keep", action="store_true", help="keep the working directory")
    parser.add_argument("--counts", help="file to write `passed failed` to")
    options = parser.parse_args()
    for name in ("old", "kilonova"):
        setattr(options, name, os.path.abspath(getattr(options, name)))
        if not os.path.exists(getattr(options, name)):
            parser.error(f"{getattr(options, name)} does not exist")
    begun, failed = time.monotonic(), 1
    folder = tempfile.mkdtemp(prefix="kilonova-upgrade-")
    run = Upgrade(options, folder)
    print(f"upgrade: {len(run.cases)} servers, {'PostgreSQL' if options.database else 'SQLite'}", flush=True)
    try:
        move = [run.copy] if options.copy_to else []
        for step in (run.prepare, run.hold, *move, run.upgrade, run.check, run.upgrade_hosts, run.empty):
            step()
        failed = 0
        print(f"upgrade: {run.checks} checks passed; {time.monotonic() - begun:.0f} s")
    except (Wrong, Gone, OSError, KeyError, ValueError) as error:
        print(f"\n  ✗ {type(error).__name__}: {error}", flush=True)
        if run.serve.starts:
            print(f"\nthe end of kilonova's log ({run.serve.log}):\n{run.serve.tail()}")
    finally:
        run.kill()
        if options.counts:
            with open(options.counts, "w", encoding="utf-8") as file:
                file.write(f"{run.checks} {failed}\n")
    if failed or options.keep:
        print(f"upgrade: the files are in {folder}")
        return failed
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
