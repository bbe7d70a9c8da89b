#!/usr/bin/env python3
"""The lab: two virtual compute hosts with real devices, and the scenarios that run on them.

    lab/lab.py build                   build the hosts' images (cached, see build/cache.py)
    lab/lab.py able                    exit with 0 if the machine can run the lab; else print why not
    lab/lab.py run [SCENARIO...]       start everything, run the scenarios, tear down
    lab/lab.py up | down               start the lab and leave it running; stop it
    lab/lab.py enter 1|2 [COMMAND]     enter a node

    --kilonova PROGRAM --packages FOLDER --openstack PROGRAM --counts FILE --brief --apart --again --keep

If the machine cannot run the lab, the run is skipped with the reason (run.py). After a failed scenario
the next one runs; the logs are kept and their paths printed. The exit code is 1 if anything failed.
"""

import argparse
import copy
import importlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [HERE, os.path.join(ROOT, "scripts")]

import agent  # noqa: E402
import host  # noqa: E402
import run as runs  # noqa: E402
from build import plan  # noqa: E402
from cloud import Cloud  # noqa: E402
from stack import Gone, Wrong  # noqa: E402

# In the order of the run. `ground` needs no controller and no agent; `hosts` starts them for the others; `volumes`
# and `storage` replace the controller.
SCENARIOS = ["ground", "hosts", "life", "create", "moves", "live", "consoles", "network", "certificates", "packages", "faults",
             "lost", "numa", "volumes", "storage"]
# Scenarios that leave the hosts unchanged run concurrently, in a few lanes: an emulated host has one processor, which a
# booting guest keeps busy.
LANES = [["life"], ["create", "moves"], ["live", "consoles", "network"]]


class Lab:
    """The context of a scenario: the nodes, the cloud, and output of results."""

    def __init__(self, options, run):
        self.options, self.run_, self.nodes = options, run, run.nodes
        guest = os.path.join(runs.FOLDER, "share/guest")
        self.cloud = Cloud(options.kilonova, options.openstack, runs.FOLDER, guest,
                           brief=options.brief)
        self.measured = []

    def lane(self, name):
        """The same lab for parallel scenarios."""
        lane = copy.copy(self)
        lane.cloud = self.cloud.lane(name)
        return lane

    def say(self, text=""):
        self.cloud.say(text)

    def heading(self, text):
        self.cloud.heading(text)

    def tick(self, text, holds=True, why=""):
        self.cloud.tick(text, holds, why)

    def measure(self, what, value):
        """A measurement, repeated at the end."""
        self.measured.append(f"{what}: {value}")
        self.say(f"  → {what}: {value}")


def cleared(lab):
    """Deletes what a failed scenario left, so that the next one starts clean. Returns whether that worked."""
    try:
        lab.cloud.clean()
        return True
    except (Wrong, Gone, OSError, KeyError, ValueError) as error:
        lab.say(f"  ✗ could not clean up after it: {error}")
        return False


def shown(lab, name, what):
    """Runs a scenario. Returns whether it passed."""
    begun = time.monotonic()
    try:
        what()
        lab.say(f"scenario {name}: passed, {time.monotonic() - begun:.0f} s")
        return True
    except (Wrong, Gone, OSError, KeyError, ValueError, IndexError, AttributeError) as error:
        lab.say(f"  ✗ {type(error).__name__}: {error}")
        lab.say(f"scenario {name}: failed after {time.monotonic() - begun:.0f} s; logs: {lab.run_.keep_logs()}")
        return False


def story(lab, names):
    """Runs scenarios in sequence. Returns the names of those that failed."""
    failed = []
    for position, name in enumerate(names):
        scenario = importlib.import_module(f"scenarios.{name}")
        if shown(lab, name, lambda scenario=scenario: scenario.run(lab)):
            continue
        failed.append(name)
        if name in ("ground", "hosts") or position + 1 < len(names) and not cleared(lab):
            break
    return failed


def beside(lab, lanes):
    """Runs lanes of scenarios in parallel, and checks that nothing remains. Returns the names of those that failed."""
    with ThreadPoolExecutor(len(lanes)) as pool:
        failed = [name for names in pool.map(lambda lane: story(lab.lane(lane[0]), lane), lanes) for name in names]
    lab.cloud.lanes.clear()

    def nothing_left():
        lab.heading("After the lanes")
        host.clean(lab)
        lab.cloud.doctor()
    if not failed and not shown(lab, "lanes", nothing_left):
        failed.append("lanes")
    return failed


def all_of(lab, names, apart):
    """Runs scenarios in order, in parallel where possible. Returns the names of those that failed."""
    lanes = [lane for lane in ([name for name in lane if name in names] for lane in LANES) if lane]
    side = [] if apart or len(lanes) < 2 else [name for lane in lanes for name in lane]
    first = min((names.index(name) for name in side), default=len(names))
    before, after = names[:first], [name for name in names[first:] if name not in side]
    failed = []
    for part in (before, side, after):
        if failed and part and (set(failed) & {"ground", "hosts"} or not cleared(lab)):
            break
        if part:
            failed += beside(lab, lanes) if part is side else story(lab, part)
    return failed


def run(options):
    """Everything, from the build to the teardown."""
    begun = time.monotonic()
    built = plan.build()
    current = runs.Run(built, fresh=not options.again)
    lab, failed, names = Lab(options, current), ["nodes"], options.scenarios or SCENARIOS
    if "hosts" not in names and names != ["ground"]:
        names = ["hosts", *names]
    try:
        current.up()
        for node in current.nodes if options.again else []:
            agent.forget(node)
        failed = all_of(lab, names, options.apart)
    except Wrong as error:
        print(f"  ✗ {error}\nlogs: {current.keep_logs()}", flush=True)
    finally:
        if not options.keep:
            lab.cloud.stop()
            runs.down()
        if options.counts:
            with open(options.counts, "w", encoding="utf-8") as file:
                file.write(f"{max(0, lab.cloud.clients.checks - len(failed))} {len(failed)}\n")
    for line in lab.measured:
        print(f"measured: {line}")
    how = f"failed: {', '.join(failed)}" if failed else "all passed"
    print(f"lab: {lab.cloud.clients.commands} commands of the stock client, "
          f"{lab.cloud.clients.checks} checks, {how}, in {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


def up(options):
    """Starts everything and prints how to enter the nodes."""
    lab = Lab(options, runs.Run(plan.build(), fresh=True))
    lab.run_.up()
    hosts = importlib.import_module("scenarios.hosts")
    if hosts.possible(options) is None:
        hosts.run(lab)
        print(f"lab: export OS_CLIENT_CONFIG_FILE={lab.cloud.clients.env['OS_CLIENT_CONFIG_FILE']} "
              "OS_CLOUD=kilonova; openstack hypervisor list")
    else:
        print(f"lab: without a controller: {hosts.possible(options)}")
    print("lab: `lab/lab.py enter 1` enters the first node, `make lab-down` stops the lab")
    return 0


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["build", "able", "run", "up", "down", "enter"])
    parser.add_argument("scenarios", nargs="*", help=f"some of {', '.join(SCENARIOS)}; or node and command")
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--packages", default=os.path.join(ROOT, "target/debian"), help="directory of both packages")
    parser.add_argument("--openstack", default=os.path.join(ROOT, ".venv/bin/openstack"))
    parser.add_argument("--counts", help="file to write `passed failed skipped` to")
    parser.add_argument("--brief", action="store_true", help="print commands and checks, no tables")
    parser.add_argument("--apart", action="store_true", help="run scenarios in sequence, for measurements")
    parser.add_argument("--again", action="store_true", help="reuse the running nodes")
    parser.add_argument("--keep", action="store_true", help="keep everything running at the end")
    options = parser.parse_args()
    if options.command == "down":
        runs.down()
        return 0
    if options.command == "enter":
        words = runs.enter(options.scenarios[0] if options.scenarios else 1)
        os.execvp("sh", ["sh", "-c", words + "".join(f" '{w}'" for w in options.scenarios[1:])])
    why = runs.cannot()
    if options.command == "able":
        print(why or "")
        return 1 if why else 0
    if why:
        print(f"lab: skipped: {why}")
        if options.counts:
            with open(options.counts, "w", encoding="utf-8") as file:
                file.write("0 0 1\n")
        return 0
    try:
        return {"build": lambda o: plan.build() and 0, "run": run, "up": up}[options.command](options)
    except Wrong as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
