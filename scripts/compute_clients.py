#!/usr/bin/env python3
"""Runs every compute command of the stock client against `kilonova serve`, and compares requests with recordings.

    scripts/compute_clients.py [--kilonova PROGRAM] [--database URL] [--only STEP,…] [--verbose]

Starts a real `kilonova serve` with simulated hosts. Runs each command of python-openstackclient and checks
its output and effects (scripts/compute/); some commands run as separate processes, the others in forks of
one interpreter (stock.py). Commands recorded against a real Nova (../shared/peers/nova/wire) or a stub
(../shared/facts/cli-wire.txt) must send the same requests here, and get the same statuses and the same keys
in the answers; without the recordings these comparisons are skipped. The run fails if a command is neither
run nor listed in scope.py with its reason. compute_sdk.py calls the methods of openstacksdk.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

from frame import add_ways
from front import serve_by
from stack import Api, Gone, Wrong, settle

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEY = ("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQDQ8sRkPCFSgkKfRR8p2eQjH2VTTcXnvAdSUCvVcGXNTTZrVMGXfrOk"
       "JQVYzCOzrDRxYCbYgoI7ezYVbWrWVmf3 x@y\n")


class Patient(Api):
    """A client that reconnects after an idle time longer than servers keep connections."""

    last = 0

    def ask(self, *arguments, **options):
        if time.monotonic() - self.last > 2:
            self.close()
        self.last = time.monotonic()
        return super().ask(*arguments, **options)


def prepare(api, own, folder):
    """Prepares hosts, profiles, quotas for many servers, a second project and user, and files."""
    deadline = time.monotonic() + 60
    while len(api.expect(200, "GET", "/compute/v2.1/os-hypervisors")["hypervisors"]) < 8 \
            or len(api.expect(200, "GET", "/accelerator/v2/devices")["devices"]) < 8:
        if time.monotonic() > deadline:
            raise Wrong("the hosts have not reported after 60 s")
        time.sleep(0.05)
    for name, group in (("dp1", {"resources:VGPU": "1"}), ("card", {"resources:FPGA": "1"}),
                        ("dp2", {"resources:FPGA": "1", "trait:CUSTOM_FAKE_DEVICE": "required"})):
        api.expect(201, "POST", "/accelerator/v2/device_profiles", [{"name": name, "groups": [group]}])
    everything = {"quota_set": {"instances": -1, "cores": -1, "ram": -1}}
    api.expect(200, "PUT", f"/compute/v2.1/os-quota-sets/{own}", everything)
    project = api.expect(201, "POST", "/identity/v3/projects", {"project": {"name": "demo"}})["project"]["id"]
    user = api.expect(201, "POST", "/identity/v3/users", {"user": {
        "name": "demo", "password": "secret", "default_project_id": project}})["user"]["id"]
    roles = api.expect(200, "GET", "/identity/v3/roles?name=member")["roles"]
    status, _, answer = api.ask("PUT", f"/identity/v3/projects/{project}/users/{user}/roles/{roles[0]['id']}")
    if status != 204:
        raise Wrong(f"the role was not assigned: {status} {answer}")
    with open(os.path.join(folder, "tiny.raw"), "wb") as file:
        file.write(bytes(4096))
    for name, text in (("key.pub", KEY), ("k.pub", KEY), ("no-key.pub", "ssh-rsa tea\n"), ("ud.txt", "#!/bin/sh\n")):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def recordings(shared):
    """The recordings that exist; the real ones first."""
    from compute import wire
    found = []
    real = os.path.join(shared, "peers/nova/wire/recorded.jsonl.xz")
    stand_in = os.path.join(shared, "facts/cli-wire.txt")
    if os.path.exists(real):
        found.append(wire.read_real(real))
    if os.path.exists(stand_in):
        found.append(wire.read_stand_in(stand_in))
    return found


def sdk(story, options):
    """Runs openstacksdk's methods in a separate process."""
    python = os.path.join(os.path.dirname(os.path.abspath(options.openstack)), "python")
    script = os.path.join(ROOT, "scripts", "compute_sdk.py")
    done = subprocess.run([python, script, "kilonova"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=400, check=False)
    for line in done.stdout.splitlines():
        story.say(f"  {line}")
        story.checks += line.startswith("✓")
    story.check("openstacksdk", done.returncode == 0, done.stdout[-900:])


def steps(story, serve, folder, options):
    """The steps by name, in order."""
    from compute import catalog, networks, places, servers, moves
    return {
        "images of guests": lambda: catalog.images(story, folder),
        "flavors": lambda: catalog.flavors(story),
        "keypairs": lambda: catalog.keypairs(story, folder),
        "aggregates": lambda: catalog.aggregates(story),
        "hosts": lambda: catalog.hosts(story),
        "groups": lambda: catalog.groups(story),
        "quotas": lambda: catalog.quotas(story),
        "others": lambda: catalog.others(story),
        "create": lambda: servers.create(story, folder),
        "look": lambda: servers.look(story),
        "change": lambda: servers.change(story),
        "actions": lambda: servers.actions(story),
        "images": lambda: servers.images(story),
        "moves": lambda: moves.moves(story),
        "live": lambda: moves.live(story),
        "evacuate": lambda: moves.evacuate(story),
        "accelerators": lambda: places.accelerators(story),
        "networks": lambda: networks.networks(story),
        "sdk": lambda: sdk(story, options),
        "ends": lambda: servers.ends(story),
        "gone": lambda: places.gone(story, serve, folder),
    }


def run(options, serve, folder, clouds):
    """Runs the steps. Returns their story."""
    from compute.stock import Stock
    from compute.story import Story
    serve.start()
    api = Patient(serve.url, cacert=serve.openrc().get("OS_CACERT"))
    own = api.login(serve.openrc())["project"]["id"]
    prepare(api, own, folder)
    story = Story(Stock(options.openstack, clouds), api, recordings(options.shared), options.verbose)
    if not story.recordings:
        story.say("there are no recordings: requests are not compared")
    wanted = options.only.split(",") if options.only else None
    for name, step in steps(story, serve, folder, options).items():
        if wanted and name not in [*wanted, "images of guests"]:
            continue
        begun = time.monotonic()
        story.say(f"\n== {name}")
        try:
            step()
        except (Wrong, Gone, OSError, KeyError, ValueError, IndexError, TypeError, AttributeError,
                subprocess.TimeoutExpired) as error:
            story.fail(f"step {name}: {type(error).__name__}: {error}")
        story.say(f"   {time.monotonic() - begun:.0f} s")
    if not wanted:
        story.missing()
    _, code, output = serve.doctor()
    story.check("the audit is clean", code == 0, output[-600:])
    return story


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--openstack", default=os.path.join(ROOT, ".venv/bin/openstack"))
    parser.add_argument("--nodes", default=os.path.join(ROOT, "scripts/compute/hosts.toml"))
    parser.add_argument("--database", help="PostgreSQL URL (default: SQLite)")
    parser.add_argument("--shared", default=os.path.join(ROOT, "../shared"), help="where the recordings are")
    parser.add_argument("--only", help="steps to run, separated by commas (default: all)")
    add_ways(parser)
    parser.add_argument("--verbose", action="store_true", help="also print each command's output")
    parser.add_argument("--counts", help="file to write `passed failed skipped` to")
    options = parser.parse_args()
    for program in (options.kilonova, options.openstack):
        if not os.path.exists(program):
            parser.error(f"{program} does not exist; `make test` builds or installs it")
    python = os.path.join(os.path.dirname(os.path.abspath(options.openstack)), "python")
    if not os.path.exists(python):
        parser.error(f"{python} does not exist; `make test` installs it")
    if os.path.dirname(sys.executable) != os.path.dirname(python):
        # Only that Python has the clients' modules.
        os.execv(python, [python, *sys.argv])
    begun = time.monotonic()
    folder = tempfile.mkdtemp(prefix="kilonova-compute-")
    state = os.path.join(folder, "state")
    os.mkdir(state, mode=0o700)
    serve = serve_by(options.way, folder, os.path.abspath(options.kilonova), state, options.nodes, options.database)
    story, failures, checks = None, ["the run did not complete"], 0
    try:
        story = run(options, serve, folder, serve.clouds)
        failures, checks = story.failures, story.checks
        print(f"\ncompute clients: {story.commands} commands ({story.apart} as processes of their own), "
              f"{story.compared} compared with recordings, {checks} checks, {len(failures)} failed, "
              f"in {time.monotonic() - begun:.0f} s")
    except (Wrong, Gone, OSError) as error:
        failures = [f"{type(error).__name__}: {error}"]
    finally:
        serve.away()
        if options.counts:
            skipped = 0 if story and story.recordings else 1
            with open(options.counts, "w", encoding="utf-8") as file:
                file.write(f"{max(0, checks - len(failures))} {len(failures)} {skipped}\n")
    if failures:
        print("\n".join(f"  ✗ {text[:600]}" for text in failures))
        print(f"compute clients: failed; its files are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
