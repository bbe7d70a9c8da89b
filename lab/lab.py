#!/usr/bin/env python3
"""The lab: two virtual compute hosts with real devices, and what is shown on them.

    lab/lab.py build                   make what the hosts start from (kept, see build/cache.py)
    lab/lab.py able                    whether the machine can have a lab (the exit code), or why not
    lab/lab.py run [SCENARIO...]       start everything, run the scenarios, tear down
    lab/lab.py up | down               leave it up; end it
    lab/lab.py enter 1|2 [COMMAND]     enter a node

    --kilonova PROGRAM --packages FOLDER --openstack PROGRAM --counts FILE --brief --keep

Skips, with the reason, where the machine cannot (run.py). Each failed scenario is told and the next
one goes on; the logs are kept and named. The exit code is 1 when anything failed.
"""

import argparse
import importlib
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [HERE, os.path.join(ROOT, "scripts")]

import agent  # noqa: E402
import run as runs  # noqa: E402
from build import plan  # noqa: E402
from cloud import Cloud  # noqa: E402
from stack import Gone, Wrong  # noqa: E402

# In this order. `ground` needs neither control plane nor agent; `hosts` begins what the rest uses.
SCENARIOS = ["ground", "hosts", "create", "life", "live", "certificates", "network", "packages", "faults", "lost"]


class Lab:
    """What a scenario gets: the nodes, the cloud, and a way to say what was seen."""

    def __init__(self, options, run):
        self.options, self.run_, self.nodes = options, run, run.nodes
        guest = os.path.join(runs.FOLDER, "share/guest")
        self.cloud = Cloud(options.kilonova, options.openstack, runs.FOLDER, guest,
                           brief=options.brief)
        self.say, self.tick, self.heading = self.cloud.say, self.cloud.tick, self.cloud.heading
        self.measured = []

    def measure(self, what, value):
        """A number that was seen, told again at the end."""
        self.measured.append(f"{what}: {value}")
        self.say(f"  → {what}: {value}")


def cleared(lab):
    """Deletes what a failed scenario has left, so that the next one can be judged; whether it can."""
    try:
        lab.cloud.clean()
        return True
    except (Wrong, Gone, OSError, KeyError, ValueError) as error:
        lab.say(f"  ✗ what it left is in the way of the others: {error}")
        return False


def story(lab, names):
    """Runs scenarios; the names of those that failed."""
    failed = []
    for position, name in enumerate(names):
        begun = time.monotonic()
        try:
            importlib.import_module(f"scenarios.{name}").run(lab)
            lab.say(f"scenario {name}: as it should be, {time.monotonic() - begun:.0f} s")
        except (Wrong, Gone, OSError, KeyError, ValueError, IndexError, AttributeError) as error:
            failed.append(name)
            lab.say(f"  ✗ {type(error).__name__}: {error}")
            lab.say(f"scenario {name}: failed after {time.monotonic() - begun:.0f} s; logs: "
                    f"{lab.run_.keep_logs()}")
            if name in ("ground", "hosts"):
                break
            if position + 1 < len(names) and not cleared(lab):
                break
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
        failed = story(lab, names)
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
    how = f"failed: {', '.join(failed)}" if failed else "all as they should be"
    print(f"lab: {lab.cloud.clients.commands} commands of the stock client, "
          f"{lab.cloud.clients.checks} checks, {how}, in {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


def up(options):
    """Brings everything up and says how to enter."""
    lab = Lab(options, runs.Run(plan.build(), fresh=True))
    lab.run_.up()
    hosts = importlib.import_module("scenarios.hosts")
    if hosts.possible(options) is None:
        hosts.run(lab)
        print(f"lab: export OS_CLIENT_CONFIG_FILE={lab.cloud.clients.env['OS_CLIENT_CONFIG_FILE']} "
              "OS_CLOUD=kilonova; openstack hypervisor list")
    else:
        print(f"lab: without a control plane: {hosts.possible(options)}")
    print("lab: `lab/lab.py enter 1` enters the first node, `make lab-down` ends it all")
    return 0


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["build", "able", "run", "up", "down", "enter"])
    parser.add_argument("scenarios", nargs="*", help=f"of {', '.join(SCENARIOS)}; or node and command")
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--packages", default=os.path.join(ROOT, "target/debian"), help="the folder of both packages")
    parser.add_argument("--openstack", default=os.path.join(ROOT, ".venv/bin/openstack"))
    parser.add_argument("--counts", help="file to write `passed failed skipped` to")
    parser.add_argument("--brief", action="store_true", help="commands and ticks, no tables")
    parser.add_argument("--again", action="store_true", help="use the nodes that are up, as they are")
    parser.add_argument("--keep", action="store_true", help="leave everything up at the end")
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
