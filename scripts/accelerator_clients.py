#!/usr/bin/env python3
"""Runs every accelerator command of the stock clients, and all of openstacksdk, against `kilonova serve`.

    scripts/accelerator_clients.py [--kilonova PROGRAM] [--database URL] [--sdk] [--verbose]

The `accelerator` commands exist twice: in python-openstackclient, which ignores the other ones, and in
python-cyborgclient. Both are run; accelerator_sdk.py calls openstacksdk's methods. The list of commands
comes from the installed packages, and the run fails if one was not used. Exits with 1 at the first check
that fails.
"""

import functools
import json
import os
import re
import subprocess
import sys
import time
import uuid

from cli import Lane
from frame import ROOT, options_of, parsed, tell
from stack import Wrong, settle

# These print nothing and have no `-f`.
SILENT = re.compile(r"\b(device (enable|disable)|(\w+ )*delete)\b")
# The same program with python-cyborgclient's commands instead of python-openstackclient's own.
CYBORGCLIENT = """#!{python}
import sys
from openstackclient import shell
shell.IGNORED_MODULES = ("openstackclient.accelerator.v2",)
sys.exit(shell.main())
"""
DISTRIBUTIONS = {"python-openstackclient": "python_openstackclient-",
                 "python-cyborgclient": "python_cyborgclient-"}
NOWHERE = "11111111-2222-3333-4444-555555555555"


class Story:
    """One of the two sets of commands, and which of them were used."""

    def __init__(self, lane, name, guest):
        self.lane, self.name, self.guest = lane, name, guest
        self.own = name == "python-cyborgclient"
        self.used = []

    def all(self, *commands, version="2.3"):
        """Runs independent commands. Returns what each printed."""
        self.used += [" ".join(command) for command in commands]
        lines = [["--os-accelerator-api-version", version, "accelerator", *command]
                 + ([] if SILENT.search(" ".join(command[:3])) else ["-f", "json"])
                 for command in commands]
        return [json.loads(answer.out) if answer.out.strip().startswith(("{", "[")) else None
                for answer in self.lane.together(lines)]

    def one(self, *command, version="2.3"):
        """Runs a command. Returns what it printed."""
        return self.all(command, version=version)[0]

    def refused(self, *pairs, version="2.3"):
        """Runs commands that must be refused, each with the expected message. The second set runs only
        commands not used elsewhere: the refusals come from the server and were checked before."""
        if self.own:
            pairs = [pair for pair in pairs
                     if not any(line.startswith(" ".join(pair[0][:2])) for line in self.used)]
        self.used += [" ".join(command) for command, _ in pairs]
        lines = [["--os-accelerator-api-version", version, "accelerator", *command]
                 for command, _ in pairs]
        for (_, why), answer in zip(pairs, self.lane.together(lines, fails=True)):
            output = " ".join((answer.out + answer.err).split())
            self.lane.tick(f"refused: {why}", why in output, output[-400:])

    def check(self, text, found, wanted):
        """Checks a value."""
        self.lane.tick(text, found == wanted, f"it is {found}, not {wanted}")


def step_devices(story):
    """Devices and deployables; a device is disabled and enabled again."""
    story.lane.say(f"\n== {story.name}: devices and deployables")
    devices, long, parts, long_parts = story.all(
        ["device", "list"], ["device", "list", "--long"],
        ["deployable", "list"], ["deployable", "list", "--long"])
    fpgas = [row for row in devices if row["type"] == "FPGA"]
    story.check("four GPUs and an FPGA", (len(devices), len(fpgas)), (5, 1))
    story.check("each device has a status", {row["status"] for row in long}, {"enabled"})
    device = fpgas[0]["uuid"]
    number = {row["device_id"] for row in long_parts if row["name"] == "fpga1_FakeDevice"}.pop()
    part = next(row["uuid"] for row in parts if row["device_id"] == number)
    counts = {row["name"]: row["num_accelerators"] for row in long_parts}
    story.check("the deployable has sixteen accelerators", counts["fpga1_FakeDevice"], 16)
    shown, shown_part = story.all(["device", "show", device], ["deployable", "show", part])
    story.check("the device is shown", (shown["hostname"], shown["status"]), ("fpga1", "enabled"))
    story.check("the deployable is shown", shown_part["name"], "fpga1_FakeDevice")
    story.one("device", "disable", device)
    story.check("disabled", story.one("device", "show", device)["status"], "maintaining")
    story.one("device", "enable", device)
    story.check("enabled", story.one("device", "show", device)["status"], "enabled")
    story.refused((["device", "show", NOWHERE], "not found"),
                  (["deployable", "show", NOWHERE], "not found"))
    return part


def step_program(story, part, image):
    """The fake device refuses a bitstream."""
    story.lane.say(f"\n== {story.name}: programming")
    if story.own:
        # Does not work with these releases: openstacksdk's `update_deployable` recurses forever.
        story.refused((["deployable", "program", part, image], "recursion depth"))
    else:
        story.refused((["deployable", "program", part, image], "FPGA programming failed"),
                      (["deployable", "program", part, NOWHERE], "image not found"))


def step_attributes(story):
    """Attributes set by hand, and those the host reports."""
    story.lane.say(f"\n== {story.name}: attributes")
    rows, _ = story.all(["device", "attribute", "list"], ["device", "attribute", "list", "--long"])
    trait = next(row for row in rows if row["value"] == "CUSTOM_FAKE_DEVICE")
    number = str(trait["deployable_id"])
    made = story.one("device", "attribute", "create", number, "rack", "b7")
    story.check("made", (str(made["deployable_id"]), made["key"], made["value"]),
                (number, "rack", "b7"))
    shown = story.one("device", "attribute", "show", made["uuid"])
    story.check("shown", shown["value"], "b7")
    story.one("device", "attribute", "delete", made["uuid"])
    left = story.one("device", "attribute", "list")
    story.check("the attribute is deleted", [row for row in left if row["key"] == "rack"], [])
    story.refused((["device", "attribute", "show", made["uuid"]], "not found"),
                  (["device", "attribute", "delete", trait["uuid"]], "was reported by the host"))


def step_profiles(story):
    """Device profiles."""
    story.lane.say(f"\n== {story.name}: device profiles")
    groups = (['[{"resources:FPGA": "1"}]'] if story.own
              else ["--group", "resources:FPGA=1,trait:CUSTOM_FAKE_DEVICE=required"])
    first, second = story.all(
        ["device", "profile", "create", f"{story.name}-a", *groups, "--description", "for tests"],
        ["device", "profile", "create", f"{story.name}-b", '[{"resources:FPGA": "2"}]'])
    story.check("made", (first["name"], first["description"]), (f"{story.name}-a", "for tests"))
    rows, long, by_uuid, by_name = story.all(
        ["device", "profile", "list"], ["device", "profile", "list", "--long"],
        ["device", "profile", "show", first["uuid"]],
        ["device", "profile", "show", f"{story.name}-b"])
    story.check("both are listed", {first["uuid"], second["uuid"]} - {row["uuid"] for row in rows},
                set())
    story.check("the list has their times", all(row["created_at"] for row in long), True)
    story.check("a profile is shown by uuid", by_uuid["groups"], first["groups"])
    story.check("a profile is shown by name", by_name["groups"], [{"resources:FPGA": "2"}])
    story.refused((["device", "profile", "show", f"{story.name}-b"], "2.2"), version="2.1")
    story.refused((["device", "profile", "create", f"{story.name}-a", '[{"resources:FPGA": "1"}]'],
                   "already exists"),
                  (["device", "profile", "create", "wrong", '[{"resources:TEA": "1"}]'],
                   "Unsupported resource class TEA"),
                  (["device", "profile", "show", NOWHERE], "not found"))
    story.one("device", "profile", "delete", first["uuid"])
    return second


def step_requests(story, profile):
    """Accelerator requests. Binding needs a service token, which the clients cannot send."""
    story.lane.say(f"\n== {story.name}: accelerator requests")
    made = story.one("arq", "create", profile["name"])
    story.check("made", (made["state"], made["device_profile_name"]), ("Initial", profile["name"]))
    rows, long, shown = story.all(["arq", "list"], ["arq", "list", "--long"],
                                  ["arq", "show", made["uuid"]])
    story.check("there are two, one for each accelerator",
                [row["state"] for row in rows if row["device_profile_name"] == profile["name"]],
                ["Initial", "Initial"])
    story.check("shown", shown["uuid"], made["uuid"])
    held = [row for row in long if row["instance_uuid"] == story.guest["id"]][0]
    story.check("a server's is bound", (held["state"], held["hostname"], held["attach_handle_type"]),
                ("Bound", "fpga1", "TEST_PCI"))
    story.check("to a function", sorted(held["attach_handle_info"]),
                ["bus", "device", "domain", "function"])
    bind = ["arq", "bind", made["uuid"], "fpga1",
            story.guest["id"] if story.own else story.guest["name"], held["device_rp_uuid"]]
    if story.own:
        bind.append(str(uuid.uuid4()))
    service = "requires a service token"
    story.refused((bind, service), (["arq", "unbind", held["uuid"]], service),
                  (["arq", "delete", held["uuid"]], "Compute API"),
                  (["arq", "create", "absent"], "not found"),
                  (["arq", "show", NOWHERE], "not found"))
    story.refused((["device", "profile", "delete", profile["uuid"]], "in use"))
    mine = [row["uuid"] for row in rows if row["device_profile_name"] == profile["name"]]
    story.one("arq", "delete", *mine)
    story.one("device", "profile", "delete", profile["uuid"])
    left, profiles = story.all(["arq", "list"], ["device", "profile", "list"])
    story.check("only the server's request is left", [row["uuid"] for row in left], [held["uuid"]])
    story.check("none of these profiles is left",
                [row["name"] for row in profiles if row["name"].startswith(story.name)], [])


def known_commands(program, distribution):
    """The commands that an installed distribution declares."""
    library = os.path.join(os.path.dirname(os.path.dirname(program)), "lib")
    for folder, folders, files in os.walk(library):
        if os.path.basename(folder).startswith(DISTRIBUTIONS[distribution]) \
                and "entry_points.txt" in files:
            with open(os.path.join(folder, "entry_points.txt"), encoding="utf-8") as file:
                section = file.read().split("[openstack.accelerator.v2]")[1].split("\n[")[0]
            return [line.split(" = ")[0].removeprefix("accelerator_").replace("_", " ")
                    for line in section.splitlines() if " = " in line]
        folders[:] = [f for f in folders
                      if f.startswith(("python3", "site-", *DISTRIBUTIONS.values()))]
    raise Wrong(f"{distribution} is not installed beside {program}")


def commands(lane, name, program, guest, image):
    """Checks that all commands of one distribution were used."""
    story = Story(lane, name, guest)
    part = step_devices(story)
    step_program(story, part, image)
    step_attributes(story)
    step_requests(story, step_profiles(story))
    known = known_commands(program, name)
    missing = [command for command in known
               if not any(f"{line} ".startswith(f"{command} ") for line in story.used)]
    lane.tick(f"all {len(known)} accelerator commands of {name} were used", not missing,
              ", ".join(missing))


def prepare(api):
    """Creates hosts, a server with an accelerator, and an image to program with."""
    deadline = time.monotonic() + 60
    while len(api.expect(200, "GET", "/accelerator/v2/devices")["devices"]) < 5:
        if time.monotonic() > deadline:
            raise Wrong("the hosts have not reported their devices after 60 s")
        time.sleep(0.1)
    profile = [{"name": "guest", "groups": [{"resources:FPGA": "1"}]}]
    api.expect(201, "POST", "/accelerator/v2/device_profiles", profile)
    flavor = {"name": "fpga", "vcpus": 1, "ram": 64, "disk": 0}
    made = api.expect(200, "POST", "/compute/v2.1/flavors", {"flavor": flavor})["flavor"]["id"]
    api.expect(200, "POST", f"/compute/v2.1/flavors/{made}/os-extra_specs",
               {"extra_specs": {"accel:device_profile": "guest"}})
    image = {"name": "bits", "disk_format": "raw", "container_format": "bare"}
    ident = api.expect(201, "POST", "/image/v2/images", image)["id"]
    status, _, answer = api.ask("PUT", f"/image/v2/images/{ident}/file", b"bits",
                                {"Content-Type": "application/octet-stream"})
    if status != 204:
        raise Wrong(f"the image was refused: {status} {answer}")
    server = {"name": "guest", "imageRef": ident, "flavorRef": made, "networks": "none"}
    guest = api.expect(202, "POST", "/compute/v2.1/servers", {"server": server})["server"]["id"]
    status = settle(api)[guest]["status"]
    if status != "ACTIVE":
        raise Wrong(f"the server is {status}")
    return {"id": guest, "name": "guest"}, ident


def sdk(lane, clients, python, image):
    """Runs openstacksdk's methods in the clients' Python."""
    lane.say("\n== openstacksdk")
    script = os.path.join(ROOT, "scripts", "accelerator_sdk.py")
    done = subprocess.run([python, script, "kilonova", image], env=clients.env, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120, check=False)
    for line in done.stdout.splitlines():
        lane.say(f"  {line}")
        clients.checks += line.startswith("✓")
    if done.returncode != 0:
        raise Wrong("openstacksdk: see above")


def story_of(only_sdk, serve, clients, folder):
    """Runs all steps."""
    serve.start()
    lane, openstack = Lane(clients), clients.program
    api = serve.api()
    api.login(serve.openrc())
    guest, image = prepare(api)
    python = os.path.join(os.path.dirname(openstack), "python")
    if not only_sdk:
        commands(lane, "python-openstackclient", openstack, guest, image)
        clients.program = os.path.join(folder, "cyborgclient")
        with open(clients.program, "w", encoding="utf-8") as file:
            file.write(CYBORGCLIENT.format(python=python))
        os.chmod(clients.program, 0o755)
        commands(lane, "python-cyborgclient", openstack, guest, image)
    sdk(lane, clients, python, image)
    # The connection was idle for longer than servers keep it open.
    api.close()
    api.expect(204, "DELETE", f"/compute/v2.1/servers/{guest['id']}")
    settle(api)
    _, code, output = serve.doctor()
    lane.tick("the audit is clean", code == 0, output[-400:])


def main():
    parser = options_of(__doc__, "examples/nodes/demo.toml")
    parser.add_argument("--sdk", action="store_true", help="run only openstacksdk's methods")
    options = parsed(parser)
    return tell("accelerator clients", options, functools.partial(story_of, options.sdk))


if __name__ == "__main__":
    sys.exit(main())
