"""The folder of a run: keys, the nodes' overlays and sockets, the control plane's state, logs.

There is one run at a time. Everything that it started is known by process ids in this folder, checked
against the command line before a signal is sent, so that nothing else is ever ended.
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
NODES = (1, 2)
# Disk that a build from nothing and a run need together, in GB.
NEEDED_GB = 6


def cannot():
    """Why this machine cannot have a lab, or None."""
    if os.geteuid() != 0:
        return "the lab needs root (device nodes and owners in the nodes' root file system)"
    if os.uname().machine != "x86_64":
        return f"the lab is for x86_64 alone, and this is {os.uname().machine}"
    os.makedirs(CACHE, exist_ok=True)
    free = shutil.disk_usage(CACHE).free / 1e9
    if free < NEEDED_GB:
        return f"{CACHE} has {free:.1f} GB free and the lab needs {NEEDED_GB}"
    done = subprocess.run([os.path.join(ROOT, "scripts/bootstrap.sh"), "lab"], check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode:
        return f"what it needs cannot be installed: {said.splitlines()[-1] if said else 'no reason given'}"
    if said:
        print(said)
    return None


class Run:
    """The one run; `fresh` begins it anew, and without it the nodes stay as they are."""

    def __init__(self, built, fresh=False):
        os.makedirs(CACHE, exist_ok=True)
        self.lock = open(os.path.join(CACHE, "run.lock"), "w", encoding="utf-8")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Wrong("another lab is being used; only one runs at a time") from None
        if fresh:
            down()
            shutil.rmtree(FOLDER, ignore_errors=True)
        else:
            end(os.path.join(FOLDER, "serve.pid"), FOLDER)
            shutil.rmtree(os.path.join(FOLDER, "cloud"), ignore_errors=True)
        keys(FOLDER)
        guest = os.path.join(FOLDER, "share/guest")
        shutil.rmtree(guest, ignore_errors=True)
        shutil.copytree(built.guest, guest)
        self.nodes = [Node(number, FOLDER, built) for number in NODES]

    def up(self, say=print):
        """Starts the nodes that are not running and waits for all."""
        begun = time.monotonic()
        started = [node for node in self.nodes if not node.running()]
        for node in started:
            node.start()
        for node in started:
            node.ready(600)
            say(f"lab: {node.name} is ready after {time.monotonic() - begun:.0f} s "
                f"({node.seconds():.0f} s of processor time)")

    def keep_logs(self):
        """Copies what the nodes say of themselves beside the other logs; where it all is."""
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
                    shutil.copy(os.path.join(path, name), logs)
        return logs


def down():
    """Ends whatever an earlier run has left: the nodes, their ssh connections, the control plane."""
    if not os.path.isdir(FOLDER):
        return
    for number in NODES:
        node = Node(number, FOLDER, None)
        node.leave()
        node.kill()
    end(os.path.join(FOLDER, "serve.pid"), FOLDER)


def end(path, belongs):
    """Ends the process whose id a file holds, when its command line shows that it is ours."""
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
    """The words that enter a node."""
    return subprocess.list2cmdline(Node(number, FOLDER, None).ssh())
