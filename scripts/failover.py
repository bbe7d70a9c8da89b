#!/usr/bin/env python3
"""Loses PostgreSQL under a load of boots: a server that hangs, and a standby that is promoted.

    scripts/failover.py [--asynchronous] [--kilonova PROGRAM] [--boots N]

Starts a primary and a streaming standby, a `kilonova serve` that knows both, and hosts as processes.

1. The primary stops (SIGSTOP): it accepts connections and answers nothing. Every API must answer 503 with Retry-After
   within the configured limits, and work again once the primary continues. So must the dashboard, with error pages, and
   its sessions must survive.
2. Under load the primary is killed and the standby is promoted. Requests in between may only be answered
   with 503 and Retry-After. Nothing that was acknowledged may be lost, no request may take effect twice,
   the audit must be clean, and no host may have ended.

With --asynchronous the standby is cut off before the primary is killed, and acknowledged work is lost: the script
prints how much. Without a restart of anything, the hosts must then match the promoted standby's database: each active
server runs, no guest is destroyed unless its server was deleted, and a deleted server that is back gets no new guest.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import urllib.parse

from chaos_compute import COMPUTE
from chaos_rest import HOST, named, wait_until
from chaos_stage import Host, Stage, names, register
from postgres_pair import PASSWORD, Pair
from stack import Api, Gone, Serve, Wrong, end_tidily, session, settle

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
THREADS = 4
MOST_ALIVE = 12     # of each thread
# The limits of a request: for a connection of the pool, an answer, and the lookup of a commit.
LIMITS = {"pool_timeout": 4, "connect_timeout": 2, "statement_timeout": 2, "lock_timeout": 1, "answer_timeout": 4}
ABSENCE = 8         # seconds without a primary: longer than requests wait for one
LOST = 40           # acknowledged requests that the standby does not receive, with --asynchronous
BOUND = 20          # seconds: their sum, with a margin for a busy machine
REQUESTS = [
    ("GET", "/identity/v3/projects", None),
    ("POST", "/identity/v3/projects", {"project": {"name": "p"}}),
    ("GET", f"{COMPUTE}/servers/detail", None),
    ("POST", f"{COMPUTE}/os-keypairs", {"keypair": {"name": "k", "type": "ssh"}}),
    ("GET", "/placement/resource_providers", None),
    ("POST", "/placement/resource_providers", {"name": "r"}),
    ("GET", "/accelerator/v2/device_profiles", None),
    ("POST", "/accelerator/v2/device_profiles", [{"name": "d", "groups": [{"resources:VGPU": "1"}]}]),
    ("GET", "/image/v2/images", None),
    ("POST", "/image/v2/images", {"name": "i", "disk_format": "raw", "container_format": "bare"}),
    ("GET", "/network/v2.0/networks", None),
    ("POST", "/network/v2.0/networks", {"network": {"name": "n"}}),
]


PAGES = ["/dashboard/servers", "/dashboard/launch", "/dashboard/floor"]


def ask(api, method, path, body=None, headers=None):
    """One request. True if it was answered 503 with Retry-After; also returns status, body and seconds."""
    begun = time.monotonic()
    status, headers, answer = api.ask(method, path, body, headers)
    took = time.monotonic() - begun
    if took > BOUND:
        raise Wrong(f"{method} {path}: {status} after {took:.1f} s")
    if status == 503 and not headers.get("retry-after", "").isdigit():
        raise Wrong(f"{method} {path}: 503 without Retry-After: {answer}")
    return status == 503, status, answer, took


class Load:
    """Threads that boot and delete servers."""

    def __init__(self, api, stage, flavor):
        self.api, self.stage, self.flavor = api, stage, flavor
        self.lock, self.over = threading.Lock(), threading.Event()
        self.live, self.gone, self.leaving = set(), set(), set()
        self.asked, self.refused, self.error = 0, 0, None
        self.last, self.pause = time.monotonic(), 0.0
        self.threads = [threading.Thread(target=self.work, args=(number,)) for number in range(THREADS)]
        for thread in self.threads:
            thread.start()

    def work(self, number):
        api, own, count = self.api.clone(), [], 0
        try:
            while not self.over.is_set():
                count += 1
                if len(own) >= MOST_ALIVE:
                    self.delete(api, own)
                else:
                    self.boot(api, own, f"boot-{number}-{count}")
        except (Wrong, Gone, KeyError, ValueError) as error:
            self.error = self.error or error

    def boot(self, api, own, name):
        body = {"server": {"name": name, "flavorRef": self.flavor, "imageRef": self.stage.image, "networks": "none"}}
        refused, status, answer, _ = ask(api, "POST", f"{COMPUTE}/servers", body)
        if self.answered(refused):
            return
        if status != 202:
            raise Wrong(f"a boot was answered {status}: {answer}")
        own.append(answer["server"]["id"])
        with self.lock:
            self.live.add(own[-1])

    def delete(self, api, own):
        server = own[0]
        with self.lock:
            self.leaving.add(server)
        refused, status, answer, _ = ask(api, "DELETE", f"{COMPUTE}/servers/{server}")
        if self.answered(refused):
            return
        # 404: an earlier delete without an answer succeeded.
        if status not in (204, 404):
            raise Wrong(f"a delete was answered {status}: {answer}")
        own.pop(0)
        with self.lock:
            self.live.discard(server)
            self.gone.add(server)

    def answered(self, refused):
        """Counts an answer. Returns whether it was a refusal."""
        now = time.monotonic()
        with self.lock:
            self.asked += 1
            self.refused += refused
            if not refused:
                self.pause, self.last = max(self.pause, now - self.last), now
        if refused:
            time.sleep(0.2)
        return refused

    def wait(self, more):
        """Waits for this many more acknowledged requests."""
        with self.lock:
            end = self.asked - self.refused + more
        deadline = time.monotonic() + 60
        while True:
            if self.error:
                raise self.error
            with self.lock:
                done = self.asked - self.refused
            if done >= end:
                return
            if time.monotonic() > deadline:
                raise Wrong(f"only {done} of {end} requests were acknowledged")
            time.sleep(0.02)

    def join(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        if self.error:
            raise self.error


def hang(pair, api, cookies):
    """Stops the primary, and checks that every API and dashboard page, with these cookies, reports it in time."""
    browser = {"Accept": "text/html", "Cookie": cookies}
    pages = [("GET", path, None, browser) for path in PAGES]
    pair.primary.signal(signal.SIGSTOP)
    wrong, times, threads = [], [], []

    def probe(method, path, body, headers=None):
        try:
            refused, status, answer, took = ask(api.clone(), method, path, body, headers)
            times.append(took)
            if not refused or headers and "<h1>Temporarily unavailable</h1>" not in answer:
                wrong.append(f"{method} {path}: {status} {answer}")
        except (Wrong, Gone) as error:
            wrong.append(f"{method} {path}: {error}")

    try:
        for request in [*REQUESTS, *pages]:
            threads.append(threading.Thread(target=probe, args=request))
            threads[-1].start()
        for thread in threads:
            thread.join()
    finally:
        pair.primary.signal(signal.SIGCONT)
    if wrong:
        raise Wrong("while the primary hangs:\n  " + "\n  ".join(wrong))
    deadline = time.monotonic() + 30
    while ask(api, "GET", f"{COMPUTE}/servers")[0]:
        if time.monotonic() > deadline:
            raise Wrong("the primary answers again, but requests do not succeed")
        time.sleep(0.1)
    for _, path, _, headers in pages:
        _, status, answer, _ = ask(api, "GET", path, None, headers)
        if status != 200 or "Log out" not in answer:
            raise Wrong(f"the primary answers again, but {path} is answered {status}: {answer}")
    print(f"failover: a primary that hangs: {len(times)} requests, each 503 with Retry-After after "
          f"{min(times):.1f} to {max(times):.1f} s", flush=True)


def lose(pair, hosts, load):
    """Kills the primary and promotes the standby. Returns the guests that run in between, by host and server."""
    if not pair.synchronous:
        # The standby receives nothing more: what is acknowledged from now on is lost.
        pair.standby.disconnect()
        load.wait(LOST)
    pair.primary.kill()
    time.sleep(ABSENCE)
    guests = set(named([host.state for host in hosts], "running"))
    pair.promote()
    return guests


def converged(api, hosts, guests, load):
    """Waits until each active server runs on its host, and checks that the guests of others stay unchanged: none is
    destroyed, and none is created for a server that was deleted."""
    folders = [host.state for host in hosts]

    def complaints():
        running = set(named(folders, "running"))
        return [f"{server} is ACTIVE, but does not run on {row[HOST]}" for server, row in api.servers().items()
                if row["status"] == "ACTIVE" and (row[HOST], server) not in running]

    wait_until(complaints, 60)
    running = {server for _, server in named(folders, "running")}
    deleted = load.gone | load.leaving
    destroyed = {server for _, server in guests} - running - deleted
    if destroyed:
        raise Wrong(f"{len(destroyed)} guests of servers that were not deleted are destroyed: {sorted(destroyed)[:5]}")
    anew = (running & load.gone) - {server for _, server in guests}
    if anew:
        raise Wrong(f"{len(anew)} deleted servers have a new, empty guest: {sorted(anew)[:5]}")
    for host in hosts:
        host.check()


def compare(load, servers, pair):
    """Checks that every answer holds, or counts those that do not."""
    lost = load.live - load.leaving - set(servers)
    back = load.gone & set(servers)
    by_name = [server["name"] for server in servers.values()]
    if len(by_name) != len(set(by_name)):
        raise Wrong("a request took effect twice")
    if pair.synchronous and (lost or back):
        raise Wrong(f"{len(lost)} acknowledged boots are lost, {len(back)} deleted servers are back")
    if not pair.synchronous and not lost:
        raise Wrong("the standby was behind, but nothing is lost")
    return len(lost), len(back)


def story(options, pair, serve, hosts):
    serve.start()
    api = Api(serve.url)
    api.login(serve.openrc())
    for host in hosts:
        host.start()
    register(api, len(hosts))
    stage = Stage(api, [host.name for host in hosts], False)
    project = api.login(serve.openrc())["project"]["id"]
    api.expect(200, "PUT", f"{COMPUTE}/os-quota-sets/{project}",
               {"quota_set": {"instances": -1, "cores": -1, "ram": -1}}, {"OpenStack-API-Version": "compute 2.56"})
    if pair.synchronous:
        parts = urllib.parse.urlsplit(serve.url)
        hang(pair, api, session(f"{parts.scheme}://{parts.netloc}", "admin", serve.openrc()["OS_PASSWORD"]))
    load = Load(api, stage, stage.flavors[0])
    try:
        load.wait(options.boots)
        begun = time.monotonic()
        guests = lose(pair, hosts, load)
        promoted = time.monotonic() - begun
        load.wait(options.boots)
    finally:
        load.over.set()
    load.join()
    for host in hosts:
        host.check()
    servers = settle(api.clone(), reasons=pair.synchronous)
    lost, back = compare(load, servers, pair)
    converged(api.clone(), hosts, guests, load)
    if not load.refused:
        raise Wrong(f"no request was answered 503 in {ABSENCE} s without a primary")
    _, code, output = serve.doctor()
    if pair.synchronous and code != 0:
        raise Wrong(f"the audit is not clean (exit code {code}):\n{output}")
    print(f"failover: {'synchronous' if pair.synchronous else 'asynchronous'} replication, promoted after "
          f"{promoted:.1f} s: {load.asked - load.refused} requests acknowledged, {load.refused} answered 503, the "
          f"longest pause {load.pause:.1f} s; {lost} acknowledged boots lost, {back} deleted servers back, the "
          f"audit {'clean' if code == 0 else 'not clean'}", flush=True)


def main():
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--asynchronous", action="store_true", help="observe what asynchronous replication loses")
    parser.add_argument("--boots", type=int, default=60, help="acknowledged requests before and after (default: 60)")
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--nodes", default=os.path.join(ROOT, "scripts/chaos.toml"))
    parser.add_argument("--counts", help="file to write `passed failed` to")
    options = parser.parse_args()
    if not os.path.exists(options.kilonova):
        parser.error(f"{options.kilonova} does not exist; `make build` builds it")
    begun, failed = time.monotonic(), 1
    folder = tempfile.mkdtemp(prefix="kilonova-failover-")
    state, config = os.path.join(folder, "state"), os.path.join(folder, "kilonova.conf")
    os.mkdir(state, mode=0o700)
    with open(config, "w", encoding="utf-8") as file:
        file.write("\n".join(["[database]", *(f"{name} = {value}" for name, value in LIMITS.items()), ""]))
    os.environ["PGPASSWORD"] = PASSWORD
    pair = serve = None
    hosts = []
    try:
        pair = Pair(not options.asynchronous)
        pair.start()
        serve = Serve(os.path.abspath(options.kilonova), state, None, pair.url(), config)
        serve.topology = options.nodes
        hosts = [Host(serve, name, folder) for name in names(options.nodes)]
        story(options, pair, serve, hosts)
        failed = 0
        print(f"failover: done in {time.monotonic() - begun:.0f} s")
    except (Wrong, Gone, OSError, KeyError, ValueError) as error:
        print(f"\n  ✗ {type(error).__name__}: {error}", flush=True)
        if serve and serve.starts:
            print(f"\nthe end of kilonova's log ({serve.log}):\n{serve.tail()}")
    finally:
        for process in [*hosts, *([serve] if serve else [])]:
            process.kill()
        if pair:
            pair.stop()
        if options.counts:
            with open(options.counts, "w", encoding="utf-8") as file:
                file.write(f"{1 - failed} {failed}\n")
    if failed:
        print(f"failover: failed; its files are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
