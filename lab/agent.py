"""The agent in the nodes: package, configuration, joining, and killing it."""

import glob
import os
import shutil

from build.debian import HERE
from build.cache import text
from stack import Wrong

UNIT = "kilonova-agent"


def package(options, name):
    """The newest package with that name, or None."""
    found = glob.glob(os.path.join(options.packages, f"{name}_*_amd64.deb"))
    return max(found, key=os.path.getmtime, default=None)


def offer(options, folder):
    """Puts the packages into the directory that the nodes share."""
    for name in ("kilonova", UNIT):
        shutil.copy(package(options, name), os.path.join(folder, "share", f"{name}.deb"))


def install(node, name=UNIT):
    """Installs a package, again if necessary."""
    return node.run(f"DEBIAN_FRONTEND=noninteractive dpkg --force-confold -i /srv/host/{name}.deb", timeout=300)


def configure(node, more=""):
    """Installs the agent in a node and writes its configuration."""
    install(node)
    settings = text(os.path.join(HERE, "files/agent.ini")).decode().replace("@NODE@", str(node.number))
    node.write("/etc/kilonova/agent.conf", settings + more)


def start(node):
    """Starts the agent, now and at each boot."""
    node.run(f"systemctl enable -q --now {UNIT}")


def stop(node):
    """Stops the agent until it is started again."""
    node.attempt(f"systemctl disable -q --now {UNIT}")


def kill(node):
    """kill -9; systemd starts it again."""
    node.run(f"systemctl kill -s KILL {UNIT}")


def log(node, lines=30):
    """The end of the agent's log."""
    return node.attempt(f"journalctl -u {UNIT} -o cat -n {lines}")[1]


def join(node, url, token):
    """Joins the agent of a node; returns its report on the host, which may have problems."""
    code, output = node.attempt(f"kilonova-agent join {url} {token}", timeout=120)
    if code not in (0, 1) or "join" in output.partition("\n")[0] and "cannot" in output:
        raise Wrong(f"{node.name}: the agent could not join (exit code {code}):\n{output[-1500:]}")
    return output


def forget(node):
    """Stops the agent and removes everything that it and its guests left in the node."""
    stop(node)
    node.run("for d in $(virsh -q list --all --uuid); do virsh -q destroy $d; virsh -q undefine --nvram "
             "--managed-save $d; done; for d in $(ls /sys/bus/mdev/devices); do virsh -q nodedev-destroy "
             "mdev_$(echo $d | tr - _)_mtty_mtty || echo 1 >/sys/bus/mdev/devices/$d/remove; done; "
             "iscsiadm -m node --logout; iscsiadm -m node --op delete; "
             "rm -rf /etc/mdevctl.d/* /var/lib/kilonova-agent /var/log/libvirt/qemu/*; "
             "true", timeout=300)
