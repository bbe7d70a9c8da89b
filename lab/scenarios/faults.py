"""Failures of hosts: reported clearly, without loss, and resolved once the cause is removed."""

import os
import time

import agent
from build.cache import run as call
from host import MTTY, clean, of, other
from stack import Wrong


def counts_on(lab, ident, before, what):
    """Checks that the guest was not touched."""
    log = lab.cloud.guest_log(ident, lambda s: s.ticks and s.ticks[-1] > before, f"its guest keeps counting {what}")
    lab.tick(f"{what}: its guest keeps counting and was not rebooted", log.boots == 1, f"{log.boots} boots")


def begun(lab, name, node, *more, flavor="vgpu", image="lab"):
    """Requests a server on a host without waiting."""
    return lab.cloud.run("server", "create", "--flavor", flavor, "--image", image, "--nic", "none",
                         "--config-drive", "true", "--host", node.name, *more, name, "-c", "id").table["id"]


def failed(lab, ident, *words):
    """Checks that the server is in ERROR and that its fault's details, for administrators, contain these words."""
    fault = lab.cloud.status(ident, "ERROR")["fault"]
    fault = fault.get("details", fault["message"])
    lab.tick(f"its fault names the reason: {fault}", all(word in fault for word in words), fault)
    lab.cloud.delete(ident)


def libvirt_restarted(lab, node, ident):
    """libvirtd is restarted, and then killed, under the agent and its guest."""
    before = lab.cloud.console(ident).ticks[-1]
    for how in ("restart", "kill -s KILL"):
        node.run(f"systemctl {how} libvirtd", timeout=180)
        counts_on(lab, ident, before, f"libvirtd after `{how}`")
        lab.cloud.run("server", "pause", ident)
        lab.cloud.status(ident, "PAUSED")
        lab.cloud.run("server", "unpause", ident)
        lab.cloud.status(ident, "ACTIVE")
        lab.tick("the agent executes requests")


def libvirt_hung(lab, node, ident):
    """libvirtd hangs for a while: the host stays up, and requests complete afterwards."""
    before = lab.cloud.console(ident).ticks[-1]
    node.run("systemctl kill -s STOP libvirtd")
    made = begun(lab, "patient", node)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if lab.cloud.server(made)["status"] != "BUILD":
            raise Wrong("a server was built, or failed, while libvirtd hung")
        time.sleep(2)
    lab.cloud.hosts([one.name for one in lab.nodes])
    lab.tick("while libvirtd hangs, its host is up and the server is in BUILD")
    node.run("systemctl kill -s CONT libvirtd")
    lab.cloud.status(made, "ACTIVE")
    lab.tick("the server becomes ACTIVE when libvirtd answers again")
    counts_on(lab, ident, before, "after libvirtd hung")
    lab.cloud.delete(made)


def disk_full(lab, node):
    """There is no space for a guest's disks, not even in root's reserve."""
    node.run("fallocate -l $(($(stat -f -c '%f * %S' /var/lib) - (64 << 20))) /var/lib/filled; "
             "dd if=/dev/zero of=/var/lib/filled.rest bs=64k 2>/dev/null; true")
    try:
        failed(lab, begun(lab, "no-room", node, flavor="plain", image="other"), "space")
    finally:
        node.run("rm -f /var/lib/filled*")


def image_corrupt(lab, node):
    """A file that is not an image is refused on upload; a truncated one is detected by the host."""
    path = os.path.join(lab.cloud.folder, "broken.qcow2")
    create = ["image", "create", "broken", "--disk-format", "qcow2", "--container-format", "bare", "--file", path]
    with open(path, "wb") as file:
        file.write(b"QFI\xfb\0\0\0\3" + bytes(range(256)) * 4096)
    refused = lab.cloud.run(*create, fails=True)
    lab.tick("a file that only begins like an image is refused", "415" in refused.err, refused.err)
    call("qemu-img", "convert", "-O", "qcow2", os.path.join(lab.cloud.guest, "lab.raw"), path)
    os.truncate(path, os.path.getsize(path) // 2)
    made = lab.cloud.run(*create, "-c", "id", "-c", "status").table["id"]
    failed(lab, begun(lab, "corrupt", node, flavor="plain", image=made), "image", made)


def wrong_type(lab, node, ident):
    """The configuration names a type of mediated device that the host does not have."""
    before = lab.cloud.console(ident).ticks[-1]
    node.run("sed -i 's/mtty-1/mtty-9/' /etc/kilonova/agent.conf; systemctl restart kilonova-agent", timeout=180)
    lab.cloud.hosts([one.name for one in lab.nodes])
    code, output = node.attempt("kilonova-agent check", timeout=120)
    lab.tick("the check names the type and the option", code == 1 and "mtty-9" in output
             and "enabled_mdev_types" in output, output)
    node.until("journalctl -u kilonova-agent -o cat -n 200", lambda log: "mtty-9" in log, "its log names the type")
    counts_on(lab, ident, before, "with a wrong mediated device type")
    node.run("sed -i 's/mtty-9/mtty-1/' /etc/kilonova/agent.conf; systemctl restart kilonova-agent", timeout=180)
    lab.cloud.hosts([one.name for one in lab.nodes])
    clean(lab, ident)


def clock(lab, node):
    """A host whose clock is ten minutes off."""
    node.run("date -s '+10 minutes'")
    try:
        code, output = node.attempt("kilonova-agent check", timeout=120)
        lab.tick("the check reports the clock's offset", code == 1 and "clock" in output, output)
        lab.cloud.hosts([one.name for one in lab.nodes])
        server = lab.cloud.boot("plain", "off-clock", "--host", node.name)
        lab.tick("the host is up and boots servers")
        lab.cloud.delete(server["id"])
    finally:
        node.run("date -s '-10 minutes'")


def twin(node, kept, name):
    """Starts a second agent, with a copy of a host's identity."""
    node.write("/root/twin.tar.b64", kept)
    node.run("mkdir -p /root/twin && base64 -d /root/twin.tar.b64 | tar -C /root/twin -xf - && "
             f"sed -e 's/^host = .*/host = {name}/' /etc/kilonova/agent.conf >/root/twin.conf")
    node.run("setsid kilonova-agent run --config /root/twin.conf --state-dir /root/twin/kilonova-agent "
             ">/root/twin.log 2>&1 </dev/null & echo $! >/root/twin.pid")


def no_twin(node):
    """Stops the second agent and removes its files."""
    node.run("kill -KILL $(cat /root/twin.pid); rm -rf /root/twin*; true")


def twice(lab, first, second):
    """A second agent uses the identity of a host. On another machine it is refused; on the same one the
    later agent is accepted and the earlier one exits."""
    kept = first.run("tar -C /var/lib --exclude=instances -cf - kilonova-agent 2>/dev/null | base64 -w 0")
    twin(second, kept, first.name)
    try:
        second.until("cat /root/twin.log", lambda log: "is another machine" in log, "the copy is refused as another machine")
        state = first.run("systemctl is-active kilonova-agent")
        lab.tick("a copy of the identity on another machine is refused, and the host is not affected", state == "active", state)
    finally:
        no_twin(second)
    twin(first, kept, first.name)
    try:
        first.until("systemctl show -p ActiveState,ExecMainStatus kilonova-agent", lambda output: "ExecMainStatus=3" in output,
                    "the first agent ends with exit code 3", timeout=60)
        lab.tick("with a copy on the same machine, the first agent ended with exit code 3 and is not restarted")
        output = agent.log(first)
        lab.tick("its log has the reason", "another" in output, output[-600:])
    finally:
        no_twin(first)
    first.run("systemctl reset-failed kilonova-agent; systemctl start kilonova-agent")
    lab.cloud.hosts([one.name for one in lab.nodes])


def run(lab):
    """Runs one guest and causes failures around it."""
    lab.heading("Failures of hosts")
    ident = lab.cloud.boot("vgpu", "unharmed")["id"]
    log = lab.cloud.guest_log(ident)
    lab.tick("the guest sees its device", log.count(MTTY) == 1)
    node = of(lab, lab.cloud.server(ident)["OS-EXT-SRV-ATTR:host"])
    libvirt_restarted(lab, node, ident)
    libvirt_hung(lab, node, ident)
    disk_full(lab, node)
    image_corrupt(lab, node)
    wrong_type(lab, node, ident)
    clock(lab, other(lab, node.name))
    lab.cloud.delete(ident)
    clean(lab)
    twice(lab, *lab.nodes)
    lab.cloud.doctor()
