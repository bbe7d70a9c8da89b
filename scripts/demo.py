#!/usr/bin/env python3
"""The main story, from scratch, with the stock OpenStack clients and checks.

    scripts/demo.py [--kilonova PROGRAM] [--database URL] [--brief]

Starts `kilonova serve` on a temporary state directory with the simulated hosts of
examples/nodes/demo.toml, and follows the two upstream guides (virtual GPUs; servers with accelerators).
Prints each command, its table and a tick; exits with 1 at the first check that fails. Only the last step
uses HTTP itself, because its kill -9 in the middle of twenty requests comes sooner than twenty client
processes can start.
"""

import os
import random
import sys
import threading
import time

from cli import Lane
from frame import options_of, parsed, tell
from stack import Gone, settle

GPU_HOST = "virtlab606"
PGPU = GPU_HOST + "_pci_0000_{}_00_0"
TRAIT = "CUSTOM_NVIDIA_11"


def boot(flavor, name, *more):
    """The arguments of `server create`, with the table's fields that the story needs."""
    return ["server", "create", "--flavor", flavor, "--image", "tiny", "--nic", "none", *more, name,
            "-c", "id", "-c", "name", "-c", "status", "-c", "OS-EXT-SRV-ATTR:host"]


def allocations(answer):
    """From an `allocation show`: resources by provider uuid, as the client prints them."""
    return {row["resource_provider"]: row["resources"] for row in answer.table.rows}


def used(answer):
    """From an `inventory list`: used amounts by resource class."""
    return {row["resource_class"]: int(row["used"]) for row in answer.table.rows}


def inventories(lane, providers):
    """The inventories of several providers, by provider uuid."""
    answers = lane.together([["resource", "provider", "inventory", "list", p] for p in providers])
    return dict(zip(providers, answers))


class Cloud:
    """Results that the steps pass on."""

    def __init__(self):
        self.providers = {}
        self.pgpus = []


def step_vgpu(lane, cloud):
    """Step 1: a flavor with `resources:VGPU=1`."""
    heading(lane, 1, "Two servers with a virtual GPU each")
    lane.run("flavor", "set", "vgpu_1", "--property", "resources:VGPU=1")
    lane.together([boot("vgpu_1", "vm-1", "--wait"), boot("vgpu_1", "vm-2", "--wait")])
    servers, tree = lane.together([["server", "list", "--name", "vm-"],
                                   ["resource", "provider", "list"]])
    for name in ("vm-1", "vm-2"):
        row = servers.table.one(Name=name)
        lane.tick(f"{name} is ACTIVE", row["Status"] == "ACTIVE", row["Status"])
    cloud.providers = {row["name"]: row["uuid"] for row in tree.table.rows}
    root = tree.table.one(name=GPU_HOST)["uuid"]
    for slot in ("84", "85", "86", "87"):
        row = tree.table.one(name=PGPU.format(slot))
        cloud.pgpus.append(row["uuid"])
        if "parent_provider_uuid" in tree.table.columns:
            lane.tick(f"{row['name']} is a child of {GPU_HOST}",
                      row["parent_provider_uuid"] == root, row["parent_provider_uuid"])
    stock = inventories(lane, [root, cloud.pgpus[0]])
    classes = sorted(stock[root].table.column("resource_class"))
    lane.tick("the root has DISK_GB, MEMORY_MB and VCPU, and no VGPU",
              classes == ["DISK_GB", "MEMORY_MB", "VCPU"], str(classes))
    classes = stock[cloud.pgpus[0]].table.column("resource_class")
    lane.tick("the pGPU has VGPU and nothing else", classes == ["VGPU"], str(classes))
    ids = [servers.table.one(Name=name)["ID"] for name in ("vm-1", "vm-2")]
    for answer in lane.together([["resource", "provider", "allocation", "show", i] for i in ids]):
        held = allocations(answer)
        cards = [p for p, resources in held.items() if "VGPU" in resources]
        lane.tick("one VGPU on one pGPU, all other resources on the root",
                  len(cards) == 1 and cards[0] in cloud.pgpus and held[cards[0]] == "{'VGPU': 1}"
                  and set(held) == {root, cards[0]} and "VCPU" in held[root], str(held))


def step_trait(lane, cloud):
    """Step 2: a trait on one pGPU, required by a flavor."""
    heading(lane, 2, "A server on just the pGPU that has a trait")
    card = PGPU.format("87")
    uuid = cloud.providers[card]
    lane.together([["trait", "create", TRAIT], ["flavor", "create", "vgpu_11", "--vcpus", "1",
                                                "--ram", "512", "--disk", "1"]])
    lane.together([["resource", "provider", "trait", "set", "--trait", TRAIT, uuid],
                   ["flavor", "set", "vgpu_11", "--property", "resources:VGPU=1",
                    "--property", f"trait:{TRAIT}=required"]])
    candidates, _ = lane.together([
        ["allocation", "candidate", "list", "--resource", "VGPU=1", "--required", TRAIT],
        boot("vgpu_11", "vm-trait", "--wait")])
    found = [row["resource provider"] for row in candidates.table.rows]
    lane.tick(f"{card} is the only candidate", found == [uuid], str(found))
    server = lane.run("server", "show", "vm-trait", "-c", "id", "-c", "status",
                      "-c", "OS-EXT-SRV-ATTR:host", "-c", "flavor")
    lane.tick("vm-trait is ACTIVE", server.table["status"] == "ACTIVE", server.table["status"])
    held = allocations(lane.run("resource", "provider", "allocation", "show", server.table["id"]))
    lane.tick(f"its VGPU is on {card}", held.get(uuid) == "{'VGPU': 1}", str(held))


def step_accelerator(lane, cloud):
    """Step 3: a device profile, and every lifecycle operation with the accelerator attached."""
    heading(lane, 3, "A server with an accelerator, through its whole life")
    devices, deployables, _ = lane.together([
        ["accelerator", "device", "list"], ["accelerator", "deployable", "list"],
        ["accelerator", "device", "profile", "create", "fpga-dp", '[{"resources:FPGA": "1"}]']])
    fpgas = [row for row in devices.table.rows if row["type"] == "FPGA"]
    lane.tick("an FPGA is listed", bool(fpgas))
    lane.tick("each device has a deployable", len(deployables.table.rows) >= len(devices.table.rows))
    lane.run("flavor", "set", "fpga_1", "--property", "accel:device_profile=fpga-dp")
    lane.run(*boot("fpga_1", "vm-fpga", "--wait"))
    server, arqs = lane.together([
        ["server", "show", "vm-fpga", "-c", "id", "-c", "status", "-c", "flavor"],
        ["accelerator", "arq", "list"]])
    ident = server.table["id"]
    lane.tick("vm-fpga is ACTIVE", server.table["status"] == "ACTIVE", server.table["status"])
    row = arqs.table.one(instance_uuid=ident)
    lane.tick("its accelerator request is Bound, with attach handle info",
              row["state"] == "Bound" and len(row["attach_handle_info"]) > 2, str(row))
    lane.run("server", "stop", "vm-fpga")
    status = ["server", "show", ident, "-c", "status", "-c", "OS-EXT-STS:task_state"]
    reached = lambda state: lambda answer: answer.table["status"] == state
    lane.until(status, reached("SHUTOFF"), "vm-fpga is SHUTOFF")
    lane.tick("the server is SHUTOFF")
    lane.run("server", "start", "vm-fpga")
    lane.until(status, reached("ACTIVE"), "vm-fpga is ACTIVE")
    lane.tick("the server is ACTIVE")
    lane.run("server", "reboot", "--hard", "--wait", "vm-fpga")
    after, held = lane.together([["accelerator", "arq", "list"],
                                 ["resource", "provider", "allocation", "show", ident]])
    lane.tick("the same accelerator request is Bound to the same handle",
              after.table.one(instance_uuid=ident) == row)
    cards = [p for p, resources in allocations(held).items() if "FPGA" in resources]
    lane.tick("one FPGA is allocated", len(cards) == 1, str(allocations(held)))
    lane.run("server", "delete", "--wait", "vm-fpga")
    arqs, stock, gone = lane.together([
        ["accelerator", "arq", "list"],
        ["resource", "provider", "inventory", "list", cards[0]],
        ["resource", "provider", "allocation", "show", ident]])
    lane.tick("the accelerator request is gone", not arqs.table.where(instance_uuid=ident))
    lane.tick("the FPGA's usage is 0", used(stock) == {"FPGA": 0}, str(used(stock)))
    lane.tick("the server has no allocation", not gone.table.rows)


def step_full(lane, cloud):
    """Step 4: one more server than there are vGPUs."""
    heading(lane, 4, "One more server than there are vGPUs")
    before = inventories(lane, cloud.pgpus)
    free = sum(int(row["total"]) - int(row["used"])
               for answer in before.values() for row in answer.table.rows)
    listing = ["server", "list", "-c", "ID", "-c", "Name", "-c", "Status", "-n"]
    lane.run(*boot("vgpu_1", "fill", "--min", str(free), "--max", str(free)))
    full = lane.until(listing, lambda a: not a.table.where(Status="BUILD"), "no server is in BUILD")
    filled = [row for row in full.table.rows if row["Name"].startswith("fill")]
    lane.tick(f"{free} more servers use all remaining vGPUs",
              len(filled) == free and all(row["Status"] == "ACTIVE" for row in filled))
    over = lane.run(*boot("vgpu_1", "one-too-many"))
    server = lane.until(["server", "show", over.table["id"], "-c", "status", "-c", "fault"],
                        lambda a: a.table["status"] not in ("BUILD", ""), "the boot has ended")
    lane.tick("the server without a vGPU is in ERROR", server.table["status"] == "ERROR")
    lane.tick("its fault says: No valid host was found.",
              "No valid host was found." in server.table["fault"], server.table["fault"])
    held = lane.run("resource", "provider", "allocation", "show", over.table["id"])
    lane.tick("the server has no allocation", not held.table.rows, str(held.table.rows))
    for answer in inventories(lane, cloud.pgpus).values():
        row = answer.table.rows[0]
        lane.tick("used = total", row["used"] == row["total"], str(row))
    lane.run("server", "delete", *full.table.column("ID"), over.table["id"])
    lane.until(listing, lambda a: not a.table.rows, "no server is left")
    for answer in inventories(lane, cloud.pgpus).values():
        lane.tick("used = 0", used(answer) == {"VGPU": 0}, str(used(answer)))


def step_kill(lane, serve):
    """Step 5: kill -9 in the middle of twenty creates and deletes."""
    heading(lane, 5, "kill -9 of the whole system while 20 creates and deletes are running")
    api = serve.api()
    api.login(serve.openrc())
    flavors = api.expect(200, "GET", "/compute/v2.1/flavors")["flavors"]
    flavor = {f["name"]: f["id"] for f in flavors}
    image = api.expect(200, "GET", "/image/v2/images?name=tiny")["images"][0]["id"]

    def create(connection, name, kind):
        body = {"server": {"name": name, "flavorRef": flavor[kind], "imageRef": image,
                           "networks": "none"}}
        return connection.expect(202, "POST", "/compute/v2.1/servers", body)["server"]["id"]

    doomed = [create(api, f"old-{n}", "vgpu_1") for n in range(10)]
    settle(api)
    created, deleted, unanswered, wrong = [], [], [], []
    killer = threading.Semaphore(0)

    def work(job):
        connection, begun = api.clone(), job
        time.sleep(random.uniform(0, 0.15))
        try:
            if isinstance(job, int):
                created.append(create(connection, f"new-{job}", "fpga_1" if job == 0 else "vgpu_1"))
            else:
                connection.expect(204, "DELETE", f"/compute/v2.1/servers/{job}")
                deleted.append(job)
        except Gone:
            unanswered.append(begun)
        except Exception as error:  # noqa: BLE001 - the main thread reports it
            wrong.append(error)
        killer.release()

    jobs = [*range(10), *doomed]
    random.shuffle(jobs)
    threads = [threading.Thread(target=work, args=[job]) for job in jobs]
    for thread in threads:
        thread.start()
    for _ in range(random.randint(6, 14)):
        killer.acquire()
    serve.kill()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]
    lane.say(f"$ kill -9    # {len(created)} creates and {len(deleted)} deletes had been answered, "
             f"{len(unanswered)} requests had not")
    lane.say("$ " + " ".join(serve.command()))
    lane.say(serve.start())
    servers = settle(serve.api(token=api.token))
    lost = [i for i in created if i not in servers]
    back = [i for i in deleted if i in servers]
    lane.tick("every server whose create was answered exists", not lost, str(lost))
    lane.tick("every server whose delete was answered is gone", not back, str(back))
    shown = lane.run("server", "list", "-c", "ID", "-c", "Name", "-c", "Status", "-n").table
    lane.tick("every server is ACTIVE, gone, or in ERROR with a reason",
              set(shown.column("Status")) <= {"ACTIVE", "ERROR"}, str(shown.column("Status")))
    doctor(lane, serve)


def doctor(lane, serve):
    """The ledger audit."""
    command, code, output = serve.doctor()
    lane.say("$ " + " ".join(command))
    lane.say(output.rstrip())
    lane.tick("the ledger audit is clean", code == 0, f"exit code {code}")


def heading(lane, number, text):
    lane.say(f"\n── {number}. {text} " + "─" * max(0, 84 - len(text)))


def prepare(lane, folder):
    """Creates what the steps need."""
    heading(lane, 0, "Flavors, an image, and unlimited quotas")
    image = os.path.join(folder, "tiny.raw")
    with open(image, "wb") as file:
        file.write(random.randbytes(1 << 20))
    size = ["--vcpus", "1", "--ram", "512", "--disk", "1"]
    _, made, _, _ = lane.together([
        ["flavor", "create", "vgpu_1", *size],
        ["image", "create", "tiny", "--disk-format", "raw", "--container-format", "bare",
         "--file", image, "-c", "id", "-c", "name", "-c", "status", "-c", "size", "-c", "checksum"],
        ["flavor", "create", "fpga_1", *size],
        ["quota", "set", "--instances", "-1", "--cores", "-1", "--ram", "-1", "admin"]])
    lane.tick("the image is active", made.table["status"] == "active", made.table["status"])


def story(serve, clients, folder):
    print("$ " + " ".join(serve.command()))
    print(serve.start())
    lane, cloud = Lane(clients), Cloud()
    prepare(lane, folder)
    # Steps 1 and 2 use the GPU host, step 3 the FPGA host: they run at the same time, because a client
    # that waits polls every five seconds. Step 3 is printed after them.
    side, failure = Lane(clients, live=False), []

    def beside():
        try:
            step_accelerator(side, cloud)
        except Exception as error:  # noqa: BLE001 - raised again by the main thread
            failure.append(error)

    thread = threading.Thread(target=beside)
    thread.start()
    try:
        step_vgpu(lane, cloud)
        step_trait(lane, cloud)
    finally:
        thread.join()
    side.release()
    if failure:
        raise failure[0]
    step_full(lane, cloud)
    doctor(lane, serve)
    step_kill(lane, serve)
    code, took = serve.stop()
    lane.say(f"$ kill -TERM    # exit code {code} after {took:.1f} s")
    lane.tick("SIGTERM stops the server within 5 s with exit code 0", code == 0 and took < 5.5, f"{code}, {took:.1f} s")


def main():
    parser = options_of(__doc__, "examples/nodes/demo.toml", brief=False)
    options = parsed(parser, "`make demo` builds and installs what is needed")
    return tell("demo", options, story, port=None)


if __name__ == "__main__":
    sys.exit(main())
