"""The controller starts, both hosts join by a one-time token, and their devices are registered."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import agent
from cloud import GATEWAY
from stack import Wrong, free_port

ALIAS = {"name": "nvme", "vendor_id": "1b36", "product_id": "0010", "device_type": "type-VF"}


def possible(options):
    """The reason why a controller with real hosts is not possible, or None."""
    for program in (options.kilonova, options.openstack):
        if not os.path.exists(program):
            return f"{program} is missing"
    for name in ("kilonova", agent.UNIT):
        if not agent.package(options, name):
            return f"{options.packages} has no package {name}; make deb"
    return None


def configure(folder):
    """The controller's configuration: a listener for hosts, guests that restart with their hosts, an alias."""
    path = os.path.join(folder, "kilonova.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[DEFAULT]\nresume_guests_state_on_host_boot = true\n"
                   f"[node]\nlisten = 127.0.0.1:{free_port()}\nnames = {GATEWAY}\n"
                   "[ml2_type_vlan]\nnetwork_vlan_ranges = physnet1:100:4094, lan\n"
                   "[pci]\nalias = " + json.dumps(ALIAS) + "\n")
    return path


def command(lab, *words):
    """The output of an operator's `kilonova` command."""
    serve = lab.cloud.serve
    words = [serve.binary, *words, "--format", "json"]
    done = subprocess.run(words, env={**os.environ, **lab.cloud.openrc()}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise Wrong(f"{' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def enroll(lab, node):
    """The output of `kilonova node enroll`: the URL to join, and the token."""
    made = command(lab, "node", "enroll", "--host", node.name)
    return made["url"], made["token"]


def join(lab, node, more=""):
    """Installs the agent with additional configuration lines, joins and starts it; returns its report on the host."""
    agent.configure(node, more)
    output = agent.join(node, *enroll(lab, node))
    agent.start(node)
    return output


def joined(lab, more=""):
    """Joins both hosts, with additional configuration lines."""
    with ThreadPoolExecutor(len(lab.nodes)) as pool:
        for output in pool.map(lambda node: join(lab, node, more), lab.nodes):
            lab.say(output)
    lab.cloud.hosts([node.name for node in lab.nodes])


def run(lab):
    """Starts the controller and joins two hosts with devices."""
    lab.heading("Two hosts join")
    why = possible(lab.options)
    if why:
        raise Wrong(why)
    cloud = lab.cloud
    cloud.serve.config = configure(cloud.folder)
    lab.say(cloud.start())
    agent.offer(lab.options, cloud.folder)
    joined(lab)
    shown = cloud.run("hypervisor", "list")
    lab.tick("both hosts are up, under QEMU", sorted(
        (row["Hypervisor Hostname"], row["Hypervisor Type"], row["State"]) for row in shown.table.rows)
        == [(node.name, "QEMU", "up") for node in lab.nodes], str(shown.table.rows))
    names = set(cloud.run("resource", "provider", "list").table.column("name"))
    for node in lab.nodes:
        for card in ("mtty_mtty", "0000:01:00.0", "0000:02:00.0"):
            lab.tick(f"the provider {node.name}_{card} exists", f"{node.name}_{card}" in names, str(names))
    cloud.images()
    cloud.flavor("plain")
    cloud.flavor("vgpu", "resources:VGPU=1")
