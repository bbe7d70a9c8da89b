"""Guests with dedicated CPUs, NUMA cells and large pages on hosts with two cells: libvirt's pins, where the kernel runs
the threads and has the memory, the cells, distances and device that the guests see, and all of this after a live
migration."""

import os
import re
import textwrap
from concurrent.futures import ThreadPoolExecutor

from host import MTTY, NVME, attached, clean, of, other
from scenarios.live import goes_on, host_of, migrate, settled

# The first host has three dedicated CPUs in its first cell, the second one in its second cell. A guest cell
# with two of them therefore moves to another host cell when it migrates.
OPTIONS = {
    "node1": {"shared": "0,4", "dedicated": "1-3,5"},
    "node2": {"shared": "0,4", "dedicated": "1,5-7"},
}
# Too few pages are left in the first cell for the guest with large pages.
RESERVED = 100
FLAVORS = {
    "numa-two": (3, 256, [
        "hw:cpu_policy=dedicated", "hw:numa_nodes=2", "hw:numa_cpus.0=0,1", "hw:numa_mem.0=160",
        "hw:numa_cpus.1=2", "hw:numa_mem.1=96", "resources:VGPU=1"]),
    "numa-large": (1, 192, [
        "hw:cpu_policy=dedicated", "hw:emulator_threads_policy=share", "hw:mem_page_size=large"]),
    "numa-isolate": (1, 192, ["hw:cpu_policy=dedicated", "hw:emulator_threads_policy=isolate"]),
    "numa-shared": (1, 192, ["hw:numa_nodes=1"]),
    "numa-device": (2, 256, ["hw:numa_nodes=2", "pci_passthrough:alias=nvme:1"]),
}
# The functions of the disk, and their cell: QEMU's main bus has none, so an administrator sets it. The agent reports
# the virtual functions as one device, at the cell of their physical function.
FUNCTIONS, CELL = "/sys/bus/pci/devices/0000:02:00.[012]/numa_node", 1
# Prints the cells that a guest has, their distances, and the cell of each PCI device.
LOOK = """\
    #!/bin/sh
    for node in /sys/devices/system/node/node[0-9]*; do
        kib=$(sed -n 's/.*MemTotal: *\\([0-9]*\\) kB/\\1/p' $node/meminfo)
        echo "guest: ${node##*/} cpus $(cat $node/cpulist) memory $kib" >/dev/console
        echo "guest: ${node##*/} distances $(cat $node/distance)" >/dev/console
    done
    for device in /sys/bus/pci/devices/*; do
        id=$(cat $device/vendor $device/device | sed 's/^0x//' | paste -sd:)
        echo "guest: device ${device##*/} $id at $(cat $device/numa_node)" >/dev/console
    done
    echo "guest: cells shown" >/dev/console
    """


def cpus(text):
    """The numbers of a list such as `0-2,5`."""
    found = set()
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def divided(lab):
    """Restarts both hosts with two cells, sets of CPUs and reserved pages."""
    def restart(node):
        if not node.cells:
            sets = OPTIONS[node.name]
            options = (f"[compute]\ncpu_shared_set = {sets['shared']}\ncpu_dedicated_set = {sets['dedicated']}\n"
                       f"[DEFAULT]\nreserved_huge_pages = node:0,size:2048,count:{RESERVED}\n")
            node.run(f"echo '{options}' >>/etc/kilonova/agent.conf")
            node.shut()
            node.cells = True
            node.start()
            node.ready(600)
            node.run(f"for file in {FUNCTIONS}; do echo {CELL} >$file || exit 1; done; systemctl restart kilonova-agent")
        return node, node.run("cat /sys/devices/system/node/node1/cpulist /sys/devices/system/node/node1/distance "
                              "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages")

    with ThreadPoolExecutor(len(lab.nodes)) as pool:
        for node, seen in pool.map(restart, lab.nodes):
            lab.tick(f"{node.name} has two cells, distances and large pages", seen.split() == ["4-7", "21", "10", "120"], seen)
    lab.cloud.hosts([node.name for node in lab.nodes])


def providers(lab, node):
    """The names of a host's resource providers, and their inventories and usages in Placement, by id."""
    api = lab.cloud.api
    root = api.expect(200, "GET", f"/placement/resource_providers?name={node.name}")["resource_providers"][0]["uuid"]
    rows = api.expect(200, "GET", f"/placement/resource_providers?in_tree={root}")["resource_providers"]
    found = {}
    for row in rows:
        path = f"/placement/resource_providers/{row['uuid']}"
        inventories = api.expect(200, "GET", f"{path}/inventories")["inventories"]
        found[row["uuid"]] = row["name"], inventories, api.expect(200, "GET", f"{path}/usages")["usages"]
    return found


def used(lab, node):
    """The dedicated CPUs that Placement counts as used on a host, and their total."""
    rows = [(have["PCPU"]["total"], usages["PCPU"]) for _, have, usages in providers(lab, node).values() if "PCPU" in have]
    return sum(taken for _, taken in rows), sum(total for total, _ in rows)


def by_cell(lab, node):
    """The CPUs that each provider of a host offers: shared and dedicated ones."""
    return {name: tuple(have.get(kind, {}).get("total", 0) for kind in ("VCPU", "PCPU"))
            for name, have, _ in providers(lab, node).values() if "MEMORY_MB" in have or "VCPU" in have or "PCPU" in have}


def fitted(lab, ident):
    """The cells of a server as its administrator sees them."""
    status, _, answer = lab.cloud.api.ask("GET", f"/compute/v2.1/servers/{ident}/topology")
    lab.tick("the API shows the server's topology", status == 200, str(answer))
    return answer


def process(ident):
    """The folder of a domain's process in /proc."""
    return f"/proc/$(cat /run/libvirt/qemu/$(virsh -q domname {ident}).pid)"


def threads(node, ident):
    """libvirt's pins of a domain's vCPUs and emulator; and the CPUs on which the kernel lets the threads run."""
    pins = dict(re.findall(r"(?m)^ *(\d+) +(\S+)$", node.run(f"virsh -q vcpupin {ident}")))
    emulator = node.run(f"virsh -q emulatorpin {ident}")
    output = node.run(f"cd {process(ident)} && grep -h Cpus_allowed_list status && for t in task/*; do "
                      "echo \"$(cat $t/comm) $(sed -n 's/Cpus_allowed_list:/allowed/p' $t/status)\"; done")
    allowed = dict(re.findall(r"(?m)^CPU (\d+)/KVM allowed\s+(\S+)$", output))
    main = re.search(r"(?m)^Cpus_allowed_list:\s+(\S+)$", output).group(1)
    return ({int(vcpu): cpus(where) for vcpu, where in pins.items()}, cpus(emulator),
            {int(vcpu): cpus(where) for vcpu, where in allowed.items()}, cpus(main))


def memory(node, ident):
    """The mappings of a guest's memory that are bound: the bound nodes, the pages on each node, and the page size."""
    output = node.run(f"grep -h ' bind[:=]' {process(ident)}/numa_maps; true")
    found = []
    for line in output.splitlines():
        pages = {int(n): int(count) for n, count in re.findall(r" N(\d+)=(\d+)", line)}
        if pages:
            bound = re.search(r" bind[:=](?:static[:=])?(\S+)", line).group(1)
            size = re.search(r"kernelpagesize_kB=(\d+)", line)
            found.append((cpus(bound), pages, int(size.group(1)) if size else 4))
    return found


def pinned(lab, ident, emulator, shared=False):
    """Checks that a guest's vCPUs, emulator and memory are where the API shows them. Returns the API's cells."""
    node = of(lab, host_of(lab, ident))
    sets = OPTIONS[node.name]
    nodes = fitted(lab, ident)["nodes"]
    wanted = {}
    for cell in nodes:
        own = {int(vcpu): {cpu} for vcpu, cpu in (cell.get("cpu_pinning") or {}).items()}
        of_host = set(range(cell["host_node"] * 4, cell["host_node"] * 4 + 4))
        for vcpu in cell["vcpu_set"]:
            wanted[vcpu] = own.get(vcpu) or cpus(sets["shared"]) & of_host
        lab.tick(f"cell {cell['host_node']} of {node.name} has its dedicated CPUs {own}",
                 shared or bool(own) and set().union(*own.values()) <= cpus(sets["dedicated"]) & of_host, str(cell))
    pins, main, allowed, emulating = threads(node, ident)
    lab.tick("`virsh vcpupin` has the API's CPUs", pins == wanted, f"{pins}, not {wanted}")
    lab.tick("the kernel lets the vCPUs run there only", allowed == wanted, f"{allowed}, not {wanted}")
    expected = emulator(wanted, sets)
    lab.tick(f"`virsh emulatorpin` and the kernel have {sorted(expected) if expected else 'another CPU'} for the emulator",
             main == emulating and (main == expected if expected else main.isdisjoint(set().union(*wanted.values()))
                                  and len(main) == 1 and main <= cpus(sets["dedicated"])), f"{main}, {emulating}")
    maps = memory(node, ident)
    hosts = sorted(cell["host_node"] for cell in nodes)
    taken = lab.cloud.api.expect(200, "GET", f"/placement/allocations/{ident}")["allocations"]
    names = {uuid: name for uuid, (name, _, _) in providers(lab, node).items()}
    held = {names.get(uuid, uuid): one["resources"]["MEMORY_MB"] for uuid, one in taken.items() if "MEMORY_MB" in one["resources"]}
    lab.tick("Placement has its memory at the providers of these cells",
             held == {f"{node.name}_NUMA{cell['host_node']}": cell["memory_mb"] for cell in nodes}, f"{held}, not {nodes}")
    lab.tick(f"/proc/PID/numa_maps: the memory of the cells is bound to the nodes {hosts}, and is there",
             {node for bound, _, _ in maps if len(bound) == 1 for node in bound} == set(hosts)
             and all(set(pages) <= bound for bound, pages, _ in maps), str(maps))
    return nodes, maps


def seen(log):
    """The cells that a guest sees: CPUs and MiB."""
    return {int(number): (cpus(where), int(kib) >> 10)
            for number, where, kib in re.findall(r"(?m)^guest: node(\d+) cpus (\S+) memory (\d+)\s*$", log.text)}


def distances(log):
    """The distances that a guest sees, by cell."""
    return {int(number): [int(one) for one in row.split()]
            for number, row in re.findall(r"(?m)^guest: node(\d+) distances ([\d ]+?)\s*$", log.text)}


def cells_of(log, ident):
    """The cells at which a guest sees its devices with these vendor and product ids."""
    return [int(cell) for cell in re.findall(rf"(?m)^guest: device \S+ {ident} at (-?\d+)\s*$", log.text)]


def with_device(lab, begun):
    """A guest with two cells sees its function at the cell that is on the function's host cell."""
    node = of(lab, "node1")
    ident = begun("numa-device", node.name)
    lab.cloud.status(ident, "ACTIVE")
    log = lab.cloud.guest_log(ident, lambda s: s.ready and "guest: cells shown" in s.text, "its guest shows its cells")
    cell = [cell["host_node"] for cell in fitted(lab, ident)["nodes"]].index(CELL)
    lab.tick(f"the guest sees its disk's function at cell {cell}", cells_of(log, NVME) == [cell], log.text[-2000:])
    xml = node.run(f"virsh -q dumpxml {ident}")
    numbers = re.findall(r"<controller type='pci' index='\d+' model='pcie-expander-bus'>.*?<node>(\d+)</node>", xml, re.S)
    lab.tick("libvirt has one expander bus, of that cell", numbers == [str(cell)], str(numbers))
    return ident


def all_of_guest(wanted, _sets):
    """Without a policy, the emulator runs on the guest's own CPUs."""
    return set().union(*wanted.values())


def moved(lab, ident):
    """The guest with two cells migrates to the host whose dedicated CPUs are in other cells."""
    source = of(lab, host_of(lab, ident))
    target = other(lab, source.name)
    before, count = fitted(lab, ident)["nodes"], lab.cloud.console(ident).ticks[-1]
    migrate(lab, ident, target)
    took = settled(lab, ident)
    lab.measure("live migration of a guest with two cells, from the command's end to ACTIVE", f"{took:.1f} s")
    lab.tick(f"the server is on {target.name}", host_of(lab, ident) == target.name)
    goes_on(lab, ident, count, "live migration")
    after, _ = pinned(lab, ident, all_of_guest)
    lab.tick("its cells have changed places", [cell["host_node"] for cell in after]
             == [1 - cell["host_node"] for cell in before], f"{before}, then {after}")
    lab.tick(f"{source.name} has no dedicated CPU in use", used(lab, source) == (0, 4), str(used(lab, source)))


def run(lab):
    """Five guests, one of which migrates."""
    lab.heading("Guests with NUMA topologies on hosts with two cells")
    cloud = lab.cloud
    divided(lab)
    for node in lab.nodes:
        node.until("true", lambda _, node=node: used(lab, node) == (0, 4), f"{node.name} offers four dedicated CPUs")
        lab.tick(f"{node.name} offers four dedicated CPUs")
        sets = OPTIONS[node.name]
        of_cell = [set(range(cell * 4, cell * 4 + 4)) for cell in (0, 1)]
        wanted = {f"{node.name}_NUMA{cell}": (len(cpus(sets["shared"]) & of_cell[cell]), len(cpus(sets["dedicated"]) & of_cell[cell]))
                  for cell in (0, 1)}
        found = by_cell(lab, node)
        lab.tick("at its NUMA cells, with their shared CPUs and memory; the root offers none", found == wanted, f"{found}, not {wanted}")
    script = os.path.join(cloud.folder, "cells.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write(textwrap.dedent(LOOK))
    for name, (vcpus, ram, specs) in FLAVORS.items():
        words = [word for spec in specs for word in ("--property", spec)]
        cloud.run("flavor", "create", name, "--vcpus", str(vcpus), "--ram", str(ram), "--disk", "1", *words, "-c", "id")

    def begun(flavor, host):
        return cloud.run("server", "create", "--flavor", flavor, "--image", "lab", "--nic", "none", "--config-drive", "true",
                         "--user-data", script, "--host", host, flavor, "-c", "id").table["id"]
    two, large = begun("numa-two", "node1"), begun("numa-large", "node2")
    looked = [cloud.guest_log(ident, lambda s: s.ready and "guest: cells shown" in s.text, "its guest shows its cells")
              for ident in (two, large)]
    for ident in (two, large):
        cloud.status(ident, "ACTIVE")

    cells = seen(looked[0])
    lab.tick("the guest sees two cells with their CPUs and memory", {n: c for n, (c, _) in cells.items()} == {0: {0, 1}, 1: {2}}
             and cells[1][1] <= 96 < cells[0][1] <= 160, str(cells))
    lab.tick("with the distances of the host's cells", distances(looked[0]) == {0: [10, 21], 1: [21, 10]},
             str(distances(looked[0])))
    lab.tick("and its mediated device", looked[0].count(MTTY) == 1 and len(attached(of(lab, "node1"), two)) == 1)
    pinned(lab, two, all_of_guest)

    nodes, maps = pinned(lab, large, lambda _, sets: cpus(sets["shared"]))
    lab.tick("its large pages are in the cell with enough of them left", [cell["host_node"] for cell in nodes] == [1]
             and [(pages, size) for _, pages, size in maps if size == 2048] == [({1: 96}, 2048)], f"{nodes} {maps}")
    free = of(lab, "node2").run("cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/free_hugepages").split()
    lab.tick("that many fewer are free on the host", free == ["120", "24"], str(free))

    moved(lab, two)
    isolated, shared = begun("numa-isolate", "node1"), begun("numa-shared", "node1")
    for ident in (isolated, shared):
        cloud.status(ident, "ACTIVE")
    pinned(lab, isolated, lambda wanted, sets: None)
    lab.tick("node1 counts the emulator's CPU", used(lab, of(lab, "node1")) == (2, 4), str(used(lab, of(lab, "node1"))))
    pinned(lab, shared, lambda wanted, _: set().union(*wanted.values()), shared=True)
    device = with_device(lab, begun)
    none = begun("numa-isolate", "node1")
    fault = cloud.status(none, "ERROR")["fault"]
    lab.tick("no other guest gets two dedicated CPUs of one cell there, although two cells have one each",
             "NUMATopologyFilter" in fault["message"] and "too few free dedicated CPUs" in fault["details"], str(fault))
    cloud.delete(none)

    clean(lab, two, large, isolated, shared, device)
    cloud.doctor()
    cloud.delete(two, large, isolated, shared, device)
    clean(lab)
    for node in lab.nodes:
        lab.tick(f"no CPU of {node.name} is in use", used(lab, node) == (0, 4), str(used(lab, node)))
    cloud.doctor()
