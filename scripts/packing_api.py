#!/usr/bin/env python3
"""Boots a workload of the openb trace over HTTP on simulated hosts, and prints which part of the devices it got.

    scripts/packing_api.py --hosts FILE [--kilonova PROGRAM] [--part N] [--seed N] WORKLOAD

The hosts of FILE become simulated hosts of one `kilonova serve`, and each device has 100 vGPUs: a request for 470 of 1,000
parts of a device takes 47 of them, and one for several whole devices takes 100 on each. The trace counts thousandths of a
CPU, and a vCPU here stands for two of them. The requests arrive one after the other, in random order and until 130 % of the devices are requested; a server
for which there is no room is deleted. Compare with `kilonova-bench packing --hosts FILE WORKLOAD`, which replays the same
requests with the same scheduler and no server. `--part N` uses every Nth host and request.
"""

import argparse
import csv
import os
import random
import shutil
import sys
import tempfile
import time

from stack import Serve, Wrong, end_tidily

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMPUTE = "/compute/v2.1"
REQUESTED = 1.3
PARTS = 100         # vGPUs of a device
WHOLE = 1000        # parts of a device in the trace
CPU_UNIT = 2        # thousandths of a CPU in a vCPU; every figure of the trace is a multiple of it
SECONDS = 120       # the longest wait for a host or a server
CARD = f"""[card.gpu]
vendor = "10de"
product = "13bd"
class = "030000"
driver = "nvidia"
types = [{{ id = "nvidia-35", name = "PART", available_instances = {PARTS} }}]
"""


def rows(path, part):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))[::part]


def topology(hosts):
    """A topology file with these hosts."""
    text = [CARD]
    for number, host in enumerate(hosts):
        addresses = ", ".join(f'"0000:{bus:02x}:00.0"' for bus in range(4, 4 + int(host["gpu"])))
        text.append(f"""[[host]]
name = "h{number}"
address = "10.0.0.1"
vcpus = {int(host["cpu_milli"]) // CPU_UNIT}
memory_mb = {host["memory_mib"]}
disk_gb = 1000
cpu_allocation_ratio = 1.0
ram_allocation_ratio = 1.0
reserved_host_memory_mb = 0
[[host.card]]
card = "gpu"
addresses = [{addresses}]
[host.devices]
enabled_mdev_types = ["nvidia-35"]
""")
    return "\n".join(text)


def devices(request):
    return int(request["num_gpu"]) * int(request["gpu_milli"]) / WHOLE


def arrivals(requests, most, dice):
    """The requests in random order, and further ones until the next would exceed `most` devices."""
    queue = requests[:]
    dice.shuffle(queue)
    total = sum(map(devices, queue))
    while total > most:
        total -= devices(queue.pop(dice.randrange(len(queue))))
    while total + devices(following := dice.choice(requests)) <= most:
        total += devices(following)
        queue.append(following)
    return queue


class Tenant:
    """The administrator, who makes a flavor for each shape and boots the servers."""

    def __init__(self, api):
        self.api, self.flavors = api, {}
        image = {"name": "packing", "disk_format": "raw", "container_format": "bare"}
        self.image = api.expect(201, "POST", "/image/v2/images", image)["id"]
        status, _, answer = api.ask("PUT", f"/image/v2/images/{self.image}/file", b"packing",
                                    {"Content-Type": "application/octet-stream"})
        if status != 204:
            raise Wrong(f"the image was not uploaded: {status} {answer}")

    def flavor(self, request):
        """The flavor of a request's shape."""
        count, share = int(request["num_gpu"]), int(request["gpu_milli"]) * PARTS // WHOLE
        shape = (request["cpu_milli"], request["memory_mib"], count, share)
        if shape not in self.flavors:
            body = {"flavor": {"name": "-".join(map(str, shape)), "vcpus": max(int(shape[0]) // CPU_UNIT, 1),
                               "ram": max(int(shape[1]), 1), "disk": 0}}
            made = self.api.expect(200, "POST", f"{COMPUTE}/flavors", body)["flavor"]["id"]
            if count:
                specs = {f"resources{number}:VGPU": str(share) for number in range(1, count + 1)}
                specs |= {"group_policy": "isolate"} if count > 1 else {}
                self.api.expect(200, "POST", f"{COMPUTE}/flavors/{made}/os-extra_specs", {"extra_specs": specs})
            self.flavors[shape] = made
        return self.flavors[shape]

    def boot(self, number, request):
        """Boots a server. Returns its id, and False if it found no room."""
        body = {"server": {"name": f"packing{number}", "imageRef": self.image, "flavorRef": self.flavor(request),
                           "networks": "none"}}
        made = self.api.expect(202, "POST", f"{COMPUTE}/servers", body,
                               {"OpenStack-API-Version": "compute 2.90"})["server"]["id"]
        deadline = time.monotonic() + SECONDS
        while (status := self.api.expect(200, "GET", f"{COMPUTE}/servers/{made}")["server"]["status"]) == "BUILD":
            if time.monotonic() > deadline:
                raise Wrong(f"server {made} is in BUILD after {SECONDS} s")
            time.sleep(0.002)
        return made, status == "ACTIVE"

    def drop(self, server):
        self.api.expect(204, "DELETE", f"{COMPUTE}/servers/{server}")


def await_hosts(api, count):
    deadline = time.monotonic() + SECONDS
    path = f"{COMPUTE}/os-hypervisors/statistics"
    older = {"OpenStack-API-Version": "compute 2.87"}
    while (known := api.expect(200, "GET", path, headers=older)["hypervisor_statistics"]["count"]) < count:
        if time.monotonic() > deadline:
            raise Wrong(f"{known} of {count} hosts have registered after {SECONDS} s")
        time.sleep(0.5)


def play(serve, hosts, requests, dice):
    """Boots the workload and prints the result."""
    serve.start()
    api = serve.api(timeout=SECONDS)
    project = api.login(serve.openrc())["project"]["id"]
    await_hosts(api, len(hosts))
    limits = dict.fromkeys(["instances", "cores", "ram"], -1)
    api.expect(200, "PUT", f"{COMPUTE}/os-quota-sets/{project}", {"quota_set": limits})
    tenant, capacity = Tenant(api), sum(int(host["gpu"]) for host in hosts)
    queue, requested, allocated, full, begun = arrivals(requests, capacity * REQUESTED, dice), 0.0, 0.0, None, time.monotonic()
    for number, request in enumerate(queue):
        server, has_room = tenant.boot(number, request)
        requested += devices(request)
        if has_room:
            allocated += devices(request)
        else:
            tenant.drop(server)
        if full is None and requested >= capacity:
            full = allocated
        if number % 500 == 499:
            print(f"  {number + 1} of {len(queue)} requests, {100 * requested / capacity:.1f} % requested, "
                  f"{100 * allocated / capacity:.2f} % allocated, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    full = allocated if full is None else full
    print(f"  devices allocated, 100 % requested{100 * full / capacity:>22.2f} %")
    print(f"  devices allocated, 130 % requested{100 * allocated / capacity:>22.2f} %")


def main():
    end_tidily()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--hosts", required=True, help="file with the columns cpu_milli, memory_mib and gpu")
    parser.add_argument("--part", type=int, default=1, help="use every Nth host and request")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the requests")
    parser.add_argument("workload", help="file with the columns cpu_milli, memory_mib, num_gpu and gpu_milli")
    options = parser.parse_args()
    hosts, requests = rows(options.hosts, options.part), rows(options.workload, options.part)
    if any(request.get("gpu_spec") for request in requests):
        parser.error("requests with gpu_spec are not supported")
    dice = random.Random(options.seed)
    dice.shuffle(hosts)
    folder = tempfile.mkdtemp(prefix="kilonova-packing-")
    nodes, state = os.path.join(folder, "nodes.toml"), os.path.join(folder, "state")
    os.mkdir(state)
    with open(nodes, "w", encoding="utf-8") as file:
        file.write(topology(hosts))
    serve = Serve(os.path.abspath(options.kilonova), state, nodes=nodes)
    try:
        print(f"{os.path.basename(options.workload)} over HTTP: {len(hosts)} hosts, seed {options.seed}", flush=True)
        play(serve, hosts, requests, dice)
    finally:
        serve.kill()
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
