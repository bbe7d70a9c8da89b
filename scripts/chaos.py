#!/usr/bin/env python3
"""Kills a real `kilonova serve` at random under load, and audits the ledger each time.

    scripts/chaos.py [KILLS] [--split] [--accelerators] [--kilonova PROGRAM] [--database URL]
                     [--seed N] [--minutes N]

Each round: several threads run every operation on servers (chaos_compute.py) over plain HTTP for up to
a few seconds; kill -9 at a random moment; `kilonova doctor`; restart. With --split each host is a process
of its own, and a kill hits the controller, a host, or all of them. From time to time a host is
declared down for some rounds and its servers are evacuated; with --split the host really stops. With
--accelerators the load is only creates, deletes, stops and starts, while an external Nova binds devices
over the v2 API and a host reports devices that vanish and return (chaos_accelerators.py).

Every answer must hold: a created server exists, a deleted one disappears, and every operation has ended.
From time to time, and at the end, the script waits until nothing is in progress and runs further checks
(chaos_rest.py); at the very end it deletes everything and requires every usage to be 0, and no guest,
device, image or file to remain.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time

import chaos_accelerators
import chaos_rest
from chaos_compute import COMPUTE, Load, World
from chaos_stage import Absence, Host, Stage, configuration, names, register
from stack import Api, Gone, Serve, Wrong, end_tidily, settle

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SETTLE_EVERY = 10   # rounds
ANSWERS = 80        # at most, before a kill


def audit(serve, when):
    _, code, output = serve.doctor()
    if code != 0:
        raise Wrong(f"the audit {when} is not clean (exit code {code}):\n{output}")


def compare(world, servers, settled):
    """Checks that every answer still holds."""
    lost = world.live - set(servers)
    if lost:
        raise Wrong(f"{len(lost)} server(s) are lost although their create was answered: {min(lost)}")
    soft = {server for server, row in servers.items() if row["status"] == "SOFT_DELETED"}
    for name, least, most, first in world.batches:
        count = sum(row["name"].startswith(f"{name}-") for row in servers.values())
        gone = int(first is not None and first not in servers)
        if (first or count) and not least <= count + gone <= most:
            raise Wrong(f"{count} servers of {name} exist; {least} to {most} were requested")
    world.batches.clear()
    if settled:
        back = world.gone & set(servers) - soft - world.restored
        if back:
            raise Wrong(f"{len(back)} server(s) exist although their delete was answered: "
                        f"{min(back)}")
        for known in (world.gone, world.leaving, world.restored):
            known.clear()
    # Servers whose answer was lost by the kill are adopted; otherwise the hosts would fill up.
    world.live |= set(servers) - world.gone - world.leaving


def equip(process, topology):
    """Sets the topology that the simulated hosts of a process find at their start."""
    if isinstance(process, Host):
        process.topology = topology
    elif process.nodes:
        process.nodes = topology


def strike(serve, hosts, away, dice):
    """Kills something. Returns what to start again."""
    hosts = [host for host in hosts if host.name != away]
    if not hosts:
        serve.kill()
        return [serve]
    for host in hosts:
        host.check()
    victims = dice.choice([[serve], [dice.choice(hosts)], [serve, *hosts]])
    for victim in victims:
        victim.kill()
    return victims


def beside(serve, nova, voice):
    """The threads that --accelerators runs in addition to the boots: how each connects, and what it does."""
    if nova is None:
        return []
    return [(lambda: nova.connect(serve.url), nova.step)] * 4 + [(lambda: Api(serve.url), voice.step)]


def rounds(options, serve, hosts, world, api, stage, nova, others, topologies, progress):
    deadline = time.monotonic() + options.minutes * 60
    absence = Absence(world, hosts, stage.hosts)
    for done in range(1, options.kills + 1):
        absence.begin(api.clone())
        load = Load(world, api, stage, others)
        load.wait(world.dice.randint(0, ANSWERS), world.dice.uniform(0.0, 0.1))
        victims = strike(serve, hosts, world.away, world.dice)
        load.join()
        audit(serve, f"after kill {done}")
        for victim in victims:
            whole = done == options.kills or len(topologies) == 1
            equip(victim, options.nodes if whole else world.dice.choice(topologies))
            victim.start()
        serve.tidy()
        if nova:
            nova.compare(api.clone())
        settled = done % SETTLE_EVERY == 0 or done == options.kills
        absence.end(api.clone(), settled)
        servers = settle(api.clone(), reasons=not world.whole) if settled else api.clone().servers()
        compare(world, servers, settled)
        if settled:
            audit(serve, f"at rest after kill {done}")
            if world.whole:
                chaos_rest.check(api.clone(), world, servers, ledger(serve), folders(serve, hosts))
        progress(done)
        if time.monotonic() > deadline and done < options.kills:
            raise Wrong(f"only {done} of {options.kills} kills in {options.minutes} minutes")


def ledger(serve):
    return chaos_rest.Ledger(serve.state, serve.database)


def folders(serve, hosts):
    """The folders in which the simulated hosts keep their guests."""
    return [host.state for host in hosts] or [os.path.join(serve.state, "nodes")]


def empty(serve, hosts, api, stage, nova, voice):
    """Deletes everything, and checks that nothing is used any more."""
    if nova:
        nova.empty(nova.connect(serve.url))
    for server in api.servers():
        api.expect(202, "POST", f"{COMPUTE}/servers/{server}/action", {"forceDelete": None})
    deadline = time.monotonic() + 60
    while api.servers():
        if time.monotonic() > deadline:
            raise Wrong("servers still exist 60 s after their delete was answered")
        time.sleep(0.05)
    for provider in api.expect(200, "GET", "/placement/resource_providers")["resource_providers"]:
        usages = api.expect(200, "GET", f"/placement/resource_providers/{provider['uuid']}/usages")
        if any(usages["usages"].values()):
            raise Wrong(f"no server is left, but {provider['name']} has {usages['usages']} used")
    arqs = api.expect(200, "GET", "/accelerator/v2/accelerator_requests")["arqs"]
    if arqs:
        raise Wrong(f"no server is left, but {len(arqs)} accelerator request(s) are: {arqs[0]}")
    if voice:
        chaos_accelerators.check_whole(api, nova, voice)
    if stage.zones:
        chaos_rest.nothing_left(api, stage, ledger(serve), folders(serve, hosts), serve.state)
    audit(serve, "with all servers deleted")


def main():
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kills", nargs="?", type=int, default=200)
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--nodes", help="topology; scripts/chaos.toml, with --accelerators "
                                        "examples/nodes/demo.toml")
    parser.add_argument("--split", action="store_true", help="run each host as a process of its own")
    parser.add_argument("--accelerators", action="store_true",
                        help="in addition, an external Nova binds devices and a host sends reports")
    parser.add_argument("--database", help="PostgreSQL URL (default: SQLite)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--minutes", type=float, default=15, help="stop after this many minutes (default: 15)")
    parser.add_argument("--counts", help="file to write `passed failed` to")
    options = parser.parse_args()
    if not os.path.exists(options.kilonova):
        parser.error(f"{options.kilonova} does not exist; `make build` builds it")
    usual = "examples/nodes/demo.toml" if options.accelerators else "scripts/chaos.toml"
    options.nodes = options.nodes or os.path.join(ROOT, usual)
    begun, survived, failed = time.monotonic(), 0, 1
    folder = tempfile.mkdtemp(prefix="kilonova-chaos-")
    state = os.path.join(folder, "state")
    os.mkdir(state, mode=0o700)
    world = World(random.Random(options.seed), not options.accelerators)
    config, output = configuration(world.dice, folder) if world.whole else (None, [])
    serve = Serve(os.path.abspath(options.kilonova), state,
                  None if options.split else options.nodes, options.database, config)
    serve.topology = options.nodes
    hosts = [Host(serve, name, folder) for name in names(options.nodes)] if options.split else []
    nova = voice = None
    print(f"chaos: {options.kills} kills, seed {options.seed}, "
          f"{'PostgreSQL' if options.database else 'SQLite'}"
          f"{', each host a process' if hosts else ''}"
          f"{', devices bound by another Nova' if options.accelerators else ''}"
          f"{''.join(f', {line}' for line in output)}", flush=True)

    def progress(done):
        nonlocal survived
        survived = done
        terminal = sys.stdout.isatty()
        if terminal or done % 20 == 0 or done == options.kills:
            asked = {"operations": world.total("sent"), **(nova.requests if nova else {})}
            asked = ", ".join(f"{count} {verb}s".replace("ss", "s") for verb, count in asked.items())
            print(f"{chr(13) if terminal else ''}chaos: {done}/{options.kills} kills survived "
                  f"({asked})", end="" if terminal and done < options.kills else "\n", flush=True)

    try:
        serve.start()
        api = Api(serve.url)
        api.login(serve.openrc())
        for host in hosts:
            host.start()
        register(api, len(names(options.nodes)))
        stage = Stage(api, names(options.nodes), world.whole)
        # This test is not about quotas.
        project = api.login(serve.openrc())["project"]["id"]
        api.expect(200, "PUT", f"{COMPUTE}/os-quota-sets/{project}",
                   {"quota_set": {"instances": -1, "cores": -1, "ram": -1,
                                  "server_group_members": -1}},
                   {"OpenStack-API-Version": "compute 2.56"})
        if options.accelerators:
            nova, voice = chaos_accelerators.prepare(api, serve, world.dice, world.lock)
        api.close()
        topologies = [options.nodes]
        if options.accelerators:
            topologies = chaos_accelerators.topologies(options.nodes, folder)
        rounds(options, serve, hosts, world, api, stage, nova,
               beside(serve, nova, voice), topologies, progress)
        for host in hosts:
            host.check()
            host.kill()
            equip(host, options.nodes)
            host.start()
        empty(serve, hosts, api.clone(), stage, nova, voice)
        for host in hosts:
            host.check()
        code, took = serve.stop()
        if code != 0 or took > 5.5:
            raise Wrong(f"SIGTERM: exit code {code} after {took:.1f} s")
        failed = 0
        world.print_table()
        answered = world.total("answered") + world.total("refused") + (nova.answered if nova else 0)
        print(f"chaos: {options.kills} kills, {answered} answered requests, the audit clean "
              f"each time, nothing lost, nothing left; {time.monotonic() - begun:.0f} s")
    except (Wrong, Gone, OSError, KeyError, ValueError) as error:
        print(f"\n  ✗ {error}", flush=True)
        if serve.starts:
            print(f"\nthe end of kilonova's log ({serve.log}):\n{serve.tail()}")
    finally:
        for process in [serve, *hosts]:
            process.kill()
        if options.counts:
            with open(options.counts, "w", encoding="utf-8") as file:
                file.write(f"{survived} {failed}\n")
    if failed:
        print(f"chaos: failed with seed {options.seed}; its files are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
