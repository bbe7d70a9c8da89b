#!/usr/bin/env python3
"""Runs every osc-placement command of the stock client against `kilonova serve` with Placement alone.

    scripts/placement_clients.py [--kilonova PROGRAM] [--database URL] [--verbose]

The list of commands comes from the installed client, and the run fails if one was not used. Exits with 1
at the first check that fails.
"""

import json
import os
import re
import sys
import uuid

from cli import Lane
from frame import options_of, parsed, tell
from stack import Wrong

CONFIG = """[api]
services = placement
auth_strategy = noauth2
"""
CLOUDS = """clouds:
  kilonova:
    auth_type: admin_token
    auth:
      endpoint: {url}
      token: admin
"""
LATEST = "1.39"
# These print nothing and have no `-f`.
SILENT = re.compile(r"^(trait create|resource class (create|set)|(\w+ )*delete)\b")
TRAIT, CLASS = "CUSTOM_GREEN", "CUSTOM_TEA"
AGGREGATE, CONSUMER, PROJECT, USER = (str(uuid.uuid4()) for _ in range(4))


def by(rows, key):
    """Rows by one of their columns."""
    return {row[key]: row for row in rows}


class Story:
    """The client, the commands that were used, and the story's two providers."""

    def __init__(self, lane):
        self.lane = lane
        self.used = []
        self.host = self.gpu = None

    def all(self, *lines, version=LATEST):
        """Runs independent commands. Returns what each printed."""
        self.used += lines
        commands = [["--os-placement-api-version", version, *line.split()]
                    + ([] if SILENT.match(line) else ["-f", "json"]) for line in lines]
        return [json.loads(answer.out) if answer.out.strip() else None
                for answer in self.lane.together(commands)]

    def one(self, line, version=LATEST):
        """Runs a command. Returns what it printed."""
        return self.all(line, version=version)[0]

    def refused(self, pairs, version=LATEST):
        """Runs commands that must be refused, each with the expected message."""
        self.used += [line for line, _ in pairs]
        commands = [["--os-placement-api-version", version, *line.split()] for line, _ in pairs]
        for (_, why), answer in zip(pairs, self.lane.together(commands, fails=True)):
            output = answer.out + answer.err
            self.lane.tick(f"refused: {why}", why in output, output.strip()[-300:])

    def check(self, text, found, wanted):
        """Checks a value."""
        self.lane.tick(text, found == wanted, f"it is {found}, not {wanted}")


def step_names(story):
    """Resource classes and traits."""
    story.lane.say("\n== resource classes and traits")
    story.all(f"resource class create {CLASS}", f"trait create {TRAIT}")
    _, classes, shown, traits, trait = story.all(
        f"resource class set {CLASS}", "resource class list", f"resource class show {CLASS}",
        "trait list", f"trait show {TRAIT}")
    story.lane.tick("21 standard classes and ours", len(classes) == 22 and {"name": CLASS} in classes)
    story.lane.tick("377 standard traits and ours", len(traits) == 378 and {"name": TRAIT} in traits)
    story.check("a class is shown", shown, {"name": CLASS})
    story.check("a trait is shown", trait, {"name": TRAIT})


def step_providers(story):
    """A tree of two providers."""
    story.lane.say("\n== providers")
    host, draft = story.all("resource provider create host", "resource provider create draft")
    story.host, story.gpu = host["uuid"], draft["uuid"]
    moved = story.one(f"resource provider set {story.gpu} --name gpu"
                      f" --parent-provider {story.host}")
    story.check("it has a new name and a parent", (moved["name"], moved["parent_provider_uuid"]),
                ("gpu", story.host))
    shown, tree = story.all(f"resource provider show {story.gpu}",
                            f"resource provider list --in-tree {story.gpu}")
    story.check("its root is its parent", shown["root_provider_uuid"], story.host)
    story.check("the tree has both", sorted(row["name"] for row in tree), ["gpu", "host"])


def step_contents(story):
    """Inventories, traits and aggregates of both providers."""
    story.lane.say("\n== inventories, traits and aggregates")
    rows, _ = story.all(
        f"resource provider inventory set {story.host} --resource VCPU=8"
        f" --resource VCPU:allocation_ratio=2.0 --resource MEMORY_MB=4096 --resource {CLASS}=5",
        f"resource provider inventory set {story.gpu} --resource VGPU=8")
    story.check("three classes are set", sorted(by(rows, "resource_class")),
                [CLASS, "MEMORY_MB", "VCPU"])
    story.check("one with a ratio", by(rows, "resource_class")["VCPU"]["allocation_ratio"], 2.0)
    members, _ = story.all(
        f"resource provider aggregate set {story.gpu} --aggregate {AGGREGATE} --generation 1",
        f"resource provider inventory delete {story.host} --resource-class {CLASS}")
    story.check("an aggregate is set", members, [{"uuid": AGGREGATE}])
    vgpu = story.one(
        f"resource provider inventory class set {story.gpu} VGPU --total 4 --max_unit 2")
    story.check("a class is set", (vgpu["total"], vgpu["max_unit"], vgpu["reserved"]), (4, 2, 0))
    traits = story.one(
        f"resource provider trait set {story.gpu} --trait {TRAIT} --trait HW_GPU_API_VULKAN")
    story.check("two traits are set", sorted(row["name"] for row in traits),
                [TRAIT, "HW_GPU_API_VULKAN"])
    shown, rows, traits, members, found = story.all(
        f"resource provider inventory show {story.gpu} VGPU",
        f"resource provider inventory list {story.host}",
        f"resource provider trait list {story.gpu}",
        f"resource provider aggregate list {story.gpu}",
        f"resource provider list --resource VGPU=1 --required {TRAIT} --member-of {AGGREGATE}")
    story.check("the inventory is shown", (shown["total"], shown["used"]), (4, 0))
    story.check("one class is gone", sorted(by(rows, "resource_class")), ["MEMORY_MB", "VCPU"])
    story.check("the traits are listed", len(traits), 2)
    story.check("the aggregate is listed", members, [{"uuid": AGGREGATE}])
    story.check("it is found by its inventory, trait and aggregate", [row["uuid"] for row in found], [story.gpu])


def step_claims(story):
    """Claims a candidate; shows, changes and releases it."""
    story.lane.say("\n== candidates and allocations")
    rows = story.one(f"allocation candidate list --resource VCPU=2 --group 1 --resource VGPU=1"
                     f" --required {TRAIT} --limit 5")
    story.check("there is one candidate, on both", sorted(row["resource provider"] for row in rows),
                sorted([story.host, story.gpu]))
    story.check("its summary is shown",
                by(rows, "resource provider")[story.gpu]["inventory used/capacity"], "VGPU=0/4")
    claim = (f"--project-id {PROJECT} --user-id {USER} --consumer-type INSTANCE"
             f" --allocation rp={story.host},VCPU=2")
    held = story.one(f"resource provider allocation set {CONSUMER} {claim}"
                     f" --allocation rp={story.gpu},VGPU=1")
    story.check("both are held", by(held, "resource_provider")[story.gpu]["resources"], {"VGPU": 1})
    shown, used, own, with_claims = story.all(
        f"resource provider allocation show {CONSUMER}",
        f"resource provider usage show {story.gpu}",
        f"resource provider inventory show {story.host} VCPU",
        f"resource provider show --allocations {story.host}")
    row = by(shown, "resource_provider")[story.host]
    story.check("its project, user and type are shown", (row["project_id"], row["user_id"], row["consumer_type"]),
                (PROJECT, USER, "INSTANCE"))
    story.check("it is used", used, [{"resource_class": "VGPU", "usage": 1}])
    story.check("and counted", own["used"], 2)
    story.check("a provider shows its consumers", list(with_claims["allocations"]), [CONSUMER])
    story.check("a project's usage is summed",
                by(story.one(f"resource usage show {PROJECT} --user-id {USER}", "1.29"),
                   "resource_class")["VCPU"]["usage"], 2)
    story.refused([
        (f"resource provider allocation set {uuid.uuid4()} {claim.replace('VCPU=2', 'VCPU=99')}",
         "The requested amount would exceed the capacity"),
        (f"resource provider delete {story.gpu}", "Unable to delete resource provider")])
    left = story.one(f"resource provider allocation unset {CONSUMER} --provider {story.gpu}")
    story.check("one is released", [row["resource_provider"] for row in left], [story.host])
    story.one(f"resource provider allocation delete {CONSUMER}")
    story.check("nothing is held", story.one(f"resource provider allocation show {CONSUMER}"), [])


def step_end(story):
    """Deletes everything."""
    story.lane.say("\n== the end")
    story.all(f"resource provider inventory delete {story.gpu}",
              f"resource class delete {CLASS}")
    story.one(f"resource provider trait delete {story.gpu}")
    story.all(f"trait delete {TRAIT}", f"resource provider delete {story.gpu}")
    story.one(f"resource provider delete {story.host}")
    left, traits = story.all("resource provider list", "trait list --name startswith:CUSTOM_")
    story.check("nothing is left", (left, traits), ([], []))


def known_commands(program):
    """The commands of the installed osc-placement, from its entry points."""
    library = os.path.join(os.path.dirname(os.path.dirname(program)), "lib")
    for folder, folders, files in os.walk(library):
        if os.path.basename(folder).startswith("osc_placement-") and "entry_points.txt" in files:
            with open(os.path.join(folder, "entry_points.txt"), encoding="utf-8") as file:
                section = file.read().split("[openstack.placement.v1]")[1].split("[")[0]
            return [line.split(" = ")[0].replace("_", " ")
                    for line in section.splitlines() if " = " in line]
        folders[:] = [f for f in folders if f.startswith(("python3", "site-", "osc_placement-"))]
    raise Wrong(f"osc-placement is not installed beside {program}")


def forgotten(commands, used):
    """The commands that were not used."""
    def longest(line):
        fit = [command for command in commands if f"{line} ".startswith(f"{command} ")]
        return max(fit, key=len, default=None)
    seen = {longest(line) for line in used}
    return [command for command in commands if command not in seen]


def story_of(serve, clients, folder):
    """Runs all steps."""
    serve.config, clouds = os.path.join(folder, "kilonova.conf"), os.path.join(folder, "clouds.yaml")
    with open(serve.config, "w", encoding="utf-8") as file:
        file.write(CONFIG)
    serve.start()
    with open(clouds, "w", encoding="utf-8") as file:
        file.write(CLOUDS.format(url=serve.url))
    clients.env["OS_CLIENT_CONFIG_FILE"] = clouds
    lane = Lane(clients)
    story = Story(lane)
    for step in (step_names, step_providers, step_contents, step_claims, step_end):
        step(story)
    commands = known_commands(clients.program)
    missing = forgotten(commands, story.used)
    lane.say()
    lane.tick(f"all {len(commands)} commands of osc-placement were used", not missing,
              ", ".join(missing))


def main():
    return tell("placement clients", parsed(options_of(__doc__), "`make placement-conformance` installs it"), story_of)


if __name__ == "__main__":
    sys.exit(main())
