"""The folder of a run: keys, the nodes' overlays and sockets, the controller's state, logs.

There is one run at a time. This folder holds the ids of the processes that it started. Before a signal
is sent, the command line of the process is checked, so that no other process is ever killed.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import time

from build.cache import CACHE
from nodes.node import Node, keys
from stack import Wrong

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(CACHE, "run")
# The files with the ids of the other processes of a run.
PIDS = ("serve.pid", "keystone.pid", "nova.pid", "tgtd.pid")
NODES = (1, 2)
# Disk space that a complete build and a run need, in GB.
NEEDED_GB = 6


def cannot():
    """The reason why this machine cannot run the lab, or None."""
    if os.geteuid() != 0:
        return "the lab needs root (device nodes and owners in the nodes' root file system)"
    if os.uname().machine != "x86_64":
        return f"the lab needs x86_64, but this is {os.uname().machine}"
    os.makedirs(CACHE, exist_ok=True)
    free = shutil.disk_usage(CACHE).free / 1e9
    if free < NEEDED_GB:
        return f"{CACHE} has {free:.1f} GB free, but the lab needs {NEEDED_GB}"
    done = subprocess.run([os.path.join(ROOT, "scripts/bootstrap.sh"), "lab"], check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode:
        return f"could not install its prerequisites: {output.splitlines()[-1] if output else 'no reason given'}"
    if output:
        print(output)
    return None


class Run:
    """The single run; `fresh` starts from new nodes, otherwise the nodes are reused."""

    def __init__(self, built, fresh=False):
        os.makedirs(CACHE, exist_ok=True)
        self.lock = open(os.path.join(CACHE, "run.lock"), "w", encoding="utf-8")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Wrong("another lab is running; only one can run at a time") from None
        if fresh:
            down()
            shutil.rmtree(FOLDER, ignore_errors=True)
        else:
            for name in PIDS:
                end(os.path.join(FOLDER, name), FOLDER)
            shutil.rmtree(os.path.join(FOLDER, "cloud"), ignore_errors=True)
        keys(FOLDER)
        guest = os.path.join(FOLDER, "share/guest")
        shutil.rmtree(guest, ignore_errors=True)
        shutil.copytree(built.guest, guest)
        self.nodes = [Node(number, FOLDER, built) for number in NODES]

    def up(self, say=print):
        """Starts the stopped nodes and waits for all."""
        begun = time.monotonic()
        started = [node for node in self.nodes if not node.running()]
        for node in started:
            node.start()
        for node in started:
            node.ready(600)
            say(f"lab: {node.name} is ready after {time.monotonic() - begun:.0f} s "
                f"({node.seconds():.0f} s of processor time)")

    def keep_logs(self):
        """Copies the nodes' logs next to the other logs; returns the directory."""
        logs = os.path.join(CACHE, "logs")
        shutil.rmtree(logs, ignore_errors=True)
        os.makedirs(logs)
        for node in self.nodes:
            if node.running():
                node.collect(logs)
        for path, folders, files in os.walk(FOLDER):
            folders[:] = [name for name in folders if name not in ("share", "images")]
            for name in files:
                if name.endswith((".log", ".out")):
                    found = os.path.join(path, name)
                    shutil.copy(found, os.path.join(logs, os.path.relpath(found, FOLDER).replace("/", "-")))
        return logs


def down():
    """Stops whatever an earlier run left: nodes, ssh connections, controllers, the iSCSI target."""
    if not os.path.isdir(FOLDER):
        return
    for number in NODES:
        node = Node(number, FOLDER, None)
        node.leave()
        node.kill()
    for name in PIDS:
        end(os.path.join(FOLDER, name), FOLDER)


def end(path, belongs):
    """Kills the process of a pid file if its command line shows that it is ours."""
    try:
        with open(path, encoding="utf-8") as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if belongs.encode() not in file.read():
                return
        for number, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            os.kill(pid, number)
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    if file.read().rpartition(")")[2].split()[0] == "Z":
                        return
                time.sleep(0.05)
    except (OSError, ValueError):
        return


def enter(number):
    """The command that enters a node."""
    return subprocess.list2cmdline(Node(number, FOLDER, None).ssh())
