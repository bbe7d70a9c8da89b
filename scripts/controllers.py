#!/usr/bin/env python3
"""Runs controllers behind haproxy under load: rolling restart, stopped controllers, kills.

    scripts/controllers.py [--kilonova PROGRAM] [--old PROGRAM] [--controllers N] [--kills N] [--seed N] [--minutes N]

The controllers share a PostgreSQL of this script and are configured by examples/ha. Hosts and clients know only
haproxy. First POST and GET reach different controllers. Then, under the load of every server operation:

- each controller is stopped by SIGTERM and started again: no request fails;
- with --old, all controllers and hosts begin with an earlier program, and each is swapped for the new one and
  back: no request fails, and the audit is clean;
- the controller with the lease is stopped by SIGSTOP for longer than its lease, and continues: another takes
  over the lease, no request fails, and nothing is done twice;
- N strikes: a controller or a host is killed, PostgreSQL crashes, a controller is stopped for a while, or all
  connections are cut. Only requests in flight at that moment may fail; the audit is clean, nothing acknowledged is
  lost, and no host gives up.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import chaos_rest
from chaos import audit, compare
from chaos_compute import COMPUTE, World
from chaos_stage import Stage, names, register
from controllers_stage import DOCUMENTED, EXAMPLES, BalancedHost, Cloud, Postgres, Steady
from stack import Gone, Wrong, end_tidily, settle

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NODES = os.path.join(ROOT, "scripts/chaos.toml")
OPTIONS = ["reclaim_instance_interval = 0", "shelved_offload_time = -1"]
DRAIN = 8.5         # shutdown_delay of the example, five seconds, and a margin
LEASE = 13          # longer than the lease, its renewal and a check
NOTICED = 8         # how long after a strike an answer may be lost: haproxy's checks and its timeouts
SETTLE_EVERY = 5
QUIET = 1.5         # seconds without a new or ended operation, after which no request is in flight


class Run:
    """The processes, the load's records, and the observations."""

    def __init__(self, options, folder):
        self.options, self.folder, self.checks = options, folder, 0
        self.dice = random.Random(options.seed)
        self.world = World(self.dice, True)
        self.postgres = Postgres()
        self.postgres.start()
        self.cloud = Cloud(options.old or options.kilonova, folder, self.postgres.database("cloud"), OPTIONS,
                           options.controllers)
        self.hosts = []

    def tick(self, text):
        self.checks += 1
        print(f"  ✓ {text}", flush=True)

    def start(self):
        keepalived = shutil.which("keepalived", path=os.environ["PATH"] + ":/usr/sbin") or "keepalived"
        done = subprocess.run([keepalived, "-t", "-f", f"{EXAMPLES}/keepalived.conf"], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        # The documented interface need not exist here.
        wrong = [line for line in done.stdout.splitlines() if "interface" not in line]
        if done.returncode and wrong:
            raise Wrong(f"keepalived refuses its configuration: {wrong}")
        self.tick("keepalived accepts examples/ha/keepalived.conf")
        self.cloud.start()
        self.tick("haproxy accepts examples/ha/haproxy.cfg and uses all controllers, for users and for hosts")
        self.hosts = [BalancedHost(self.cloud, name, NODES) for name in names(NODES)]
        for host in self.hosts:
            host.start()
        self.api = self.cloud.api()
        register(self.api, len(self.hosts))
        self.stage = Stage(self.api, names(NODES), True)
        project = self.api.login(self.cloud.controllers[0].openrc())["project"]["id"]
        limits = {"instances": -1, "cores": -1, "ram": -1, "server_group_members": -1}
        self.api.expect(200, "PUT", f"{COMPUTE}/os-quota-sets/{project}", {"quota_set": limits},
                        {"OpenStack-API-Version": "compute 2.56"})
        self.ledger = chaos_rest.Ledger(self.cloud.controllers[0].state, self.cloud.database)

    def boots(self, count=20):
        """POST at one controller, GET at the other, both named by the balancer's address."""
        times = []
        for number in range(count):
            begun = time.monotonic()
            body = {"server": {"name": f"first{number}", "networks": "none", "imageRef": self.stage.image,
                               "flavorRef": self.stage.flavors[0]}}
            server = self.api.expect(202, "POST", f"{COMPUTE}/servers", body)["server"]["id"]
            # One request to each controller in turn.
            while (status := self.api.expect(200, "GET", f"{COMPUTE}/servers/{server}")["server"]["status"]) != "ACTIVE":
                if status == "ERROR" or time.monotonic() - begun > 30:
                    raise Wrong(f"server {server} is {status} after {time.monotonic() - begun:.1f} s")
                time.sleep(0.01)
            times.append(time.monotonic() - begun)
            self.world.live.add(server)
        times.sort()
        self.tick(f"{count} boots through haproxy: {times[len(times) // 2] * 1000:.0f} ms to ACTIVE (median), "
                  f"{times[-1] * 1000:.0f} ms at most")

    def load(self):
        return Steady(self.world, self.api, self.stage, [])

    def rest(self, when, load, windows=()):
        """Ends the load and checks everything."""
        load.join()
        if lost := load.lost_outside(windows):
            raise Wrong(f"{when}: {len(lost)} requests failed without a strike: {lost[0]}")
        for host in self.hosts:
            host.check()
        self.await_quiet(when)
        # haproxy may notice a failure only after it is over.
        deadline = time.monotonic() + NOTICED
        while True:
            api = self.api.clone()
            try:
                servers = settle(api, timeout=90, reasons=False)
                compare(self.world, servers, True)
                audit(self.cloud.controllers[0], when)
                chaos_rest.check(api, self.world, servers, self.ledger, [host.state for host in self.hosts])
                return
            except Gone:
                if not windows or time.monotonic() > deadline:
                    raise
                self.cloud.up(len(self.cloud.controllers))
            finally:
                api.close()

    def await_quiet(self, when):
        """Waits until no operation begins or ends. A controller that was stopped still carries out the requests that it
        had received, although their clients have given up."""
        deadline, last, since = time.monotonic() + 60, None, time.monotonic()
        while True:
            try:
                now = self.ledger.query("SELECT outcome, COUNT(*) FROM operations GROUP BY outcome ORDER BY outcome")
            except subprocess.CalledProcessError:
                now = None
            if now is None or now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > QUIET:
                return
            if time.monotonic() > deadline:
                raise Wrong(f"{when}: operations still begin or end 60 s after the load")
            time.sleep(0.2)

    def swap(self, controller, binary, load):
        """Stops a controller as its service manager does, and starts a program in its place."""
        load.wait(20, 0.5)
        controller.signal(signal.SIGTERM)
        begun = time.monotonic()
        if (code := controller.process.wait(20)) != 0:
            raise Wrong(f"SIGTERM: controller {controller.number} ended with {code}:\n{controller.tail()}")
        if (took := time.monotonic() - begun) > DRAIN:
            raise Wrong(f"SIGTERM: controller {controller.number} ended after {took:.1f} s")
        load.wait(20, 0.5)
        controller.binary = binary
        controller.start()
        controller.await_ready()
        self.cloud.up(len(self.cloud.controllers))

    def restart(self):
        load = self.load()
        for controller in self.cloud.controllers:
            self.swap(controller, controller.binary, load)
        self.rest("after a rolling restart", load)
        self.tick(f"a rolling restart under load: {self.world.heard()} answers so far, none lost")

    def upgrade(self):
        """Upgrades the controllers one after the other, swaps one back and forth, and then upgrades the hosts."""
        new, old = self.options.kilonova, self.options.old
        one = self.cloud.controllers[0]
        load = self.load()
        for controller, binary in [*((each, new) for each in self.cloud.controllers), (one, old), (one, new)]:
            self.swap(controller, binary, load)
        self.rest("after the controllers' upgrade", load)
        self.tick("controllers of both versions side by side, each swapped for the other, and hosts of the old one")
        load = self.load()
        for host in self.hosts:
            host.kill()
            host.program = new
            host.start()
            load.wait(20, 0.5)
        self.swap(one, old, load)
        self.rest("with hosts of the new version and a controller of the old one", load)
        self.tick("hosts of the new version with controllers of both")
        load = self.load()
        self.swap(one, new, load)
        self.rest("after the upgrade", load)

    def stop_the_leader(self):
        """A controller that was stopped for longer than its lease does no harm."""
        stopped, others = self.with_lease()
        load = self.load()
        load.wait(20, 0.2)
        begun = time.monotonic()
        stopped.signal(signal.SIGSTOP)
        while not any(one.logged("this controller runs the loops of the cloud") for one in others):
            if time.monotonic() - begun > 30:
                raise Wrong("no other controller has taken over the lease within 30 s")
            time.sleep(0.1)
        time.sleep(max(0.0, LEASE - (time.monotonic() - begun)))
        stopped.signal(signal.SIGCONT)
        stopped.await_ready()
        ended = time.monotonic()
        deadline = ended + 30
        while not stopped.logged("another controller has taken over the loops of the cloud"):
            if time.monotonic() > deadline:
                raise Wrong("the stopped controller has not noticed that it lost the lease")
            time.sleep(0.1)
        self.cloud.up(len(self.cloud.controllers))
        load.wait(20, 1)
        self.rest("after a controller was stopped for longer than its lease", load, [(begun, ended + NOTICED)])
        self.tick(f"a controller with the lease stopped for {ended - begun:.0f} s: another has it, nothing is lost")

    def with_lease(self):
        """The controller with the lease, and the others. All have new logs, so each names only its own lease."""
        first, *others = self.cloud.controllers
        for controller in self.cloud.controllers:
            controller.stop(20)
        for controller in self.cloud.controllers:
            controller.start()
        for controller in self.cloud.controllers:
            controller.await_ready()
        self.cloud.up(len(self.cloud.controllers))
        if not first.logged("this controller runs the loops of the cloud"):
            raise Wrong("the first controller does not hold the lease")
        return first, others

    def strike(self):
        """Injects a random failure. Returns its name and a function that repairs it."""
        controller, host = self.dice.choice(self.cloud.controllers), self.dice.choice(self.hosts)
        kind = self.dice.choice(["controller", "controller", "host", "postgres", "stop", "cut"])
        if kind == "controller":
            controller.kill()
            return f"kill -9 of controller {controller.number}", controller.start
        if kind == "host":
            host.kill()
            return f"kill -9 of host {host.name}", host.start
        if kind == "postgres":
            self.postgres.stop("immediate")
            return "a crash of PostgreSQL", self.postgres.start
        if kind == "stop":
            seconds = self.dice.uniform(1, self.options.longest)
            controller.signal(signal.SIGSTOP)
            return f"{seconds:.0f} s of SIGSTOP for controller {controller.number}", lambda: self.resume(controller, seconds)
        self.cloud.cut()
        return "a cut of all connections", lambda: None

    @staticmethod
    def resume(controller, seconds):
        time.sleep(seconds)
        controller.signal(signal.SIGCONT)

    def kills(self):
        deadline = time.monotonic() + self.options.minutes * 60
        windows, load = [], self.load()
        for done in range(1, self.options.kills + 1):
            load.wait(self.dice.randint(0, 60), self.dice.uniform(0, 0.2))
            begun = time.monotonic()
            what, mend = self.strike()
            load.wait(self.dice.randint(0, 20), self.dice.uniform(0, 1))
            mend()
            for controller in self.cloud.controllers:
                controller.await_ready()
                controller.tidy()
            self.cloud.up(len(self.cloud.controllers))
            windows.append((begun, time.monotonic() + NOTICED))
            if done % SETTLE_EVERY == 0 or done == self.options.kills:
                self.rest(f"after strike {done}, {what}", load, windows)
                print(f"controllers: {done}/{self.options.kills} strikes survived ({self.world.heard()} answers)", flush=True)
                windows, load = [], self.load()
            else:
                audit(self.cloud.controllers[0], f"after strike {done}, {what}")
                time.sleep(0.2)
            if time.monotonic() > deadline and done < self.options.kills:
                raise Wrong(f"only {done} of {self.options.kills} strikes in {self.options.minutes} minutes")
        load.join()
        self.tick(f"{self.options.kills} strikes, the audit clean after each")

    def unfinished(self):
        """The open operations, their migrations and documents, as lines."""
        yield "open operations, their migrations and documents:"
        for sql in ("SELECT subject, kind, step, data, created_at, updated_at FROM operations WHERE outcome = 'open'",
                    "SELECT server_id, kind, status, source_host, dest_host, held_on FROM moves "
                    "WHERE open_server IN (SELECT subject FROM operations WHERE outcome = 'open')",
                    "SELECT host, server_id, generation, body FROM documents "
                    "WHERE server_id IN (SELECT subject FROM operations WHERE outcome = 'open')"):
            try:
                yield from (" | ".join(row) for row in self.ledger.query(sql))
            except (AttributeError, OSError, subprocess.SubprocessError) as error:
                yield str(error)

    def end(self):
        for host in self.hosts:
            host.kill()
        self.cloud.end()
        self.postgres.remove()


def main():
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--old", help="an earlier program that the controllers and the hosts run at first")
    parser.add_argument("--controllers", type=int, default=2, choices=range(2, DOCUMENTED + 1), help="how many of them")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--longest", type=float, default=5, help="the longest stop of a controller, in seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--minutes", type=float, default=30, help="for the strikes")
    parser.add_argument("--counts", help="file to write `passed failed` to")
    options = parser.parse_args()
    options.kilonova = os.path.abspath(options.kilonova)
    options.old = options.old and os.path.abspath(options.old)
    folder, failed = tempfile.mkdtemp(prefix="kilonova-controllers-"), 1
    print(f"controllers: {options.controllers} behind haproxy, {options.kills} strikes, seed {options.seed}", flush=True)
    run = Run(options, folder)
    try:
        run.start()
        run.boots()
        if options.old:
            run.upgrade()
        run.restart()
        run.stop_the_leader()
        if options.kills:
            run.kills()
        run.world.print_table()
        failed = 0
    except (Wrong, Gone, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
        print(f"\n  ✗ {error}", flush=True)
        print("\n".join(run.unfinished()))
        for controller in run.cloud.controllers:
            if controller.starts:
                print(f"\nthe end of the log of controller {controller.number} ({controller.log}):\n{controller.tail()}")
    finally:
        run.end()
        if options.counts:
            with open(options.counts, "w", encoding="utf-8") as file:
                file.write(f"{run.checks} {failed}\n")
    if failed:
        print(f"controllers: failed with seed {options.seed}; the files are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
