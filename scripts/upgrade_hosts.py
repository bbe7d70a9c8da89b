"""The simulated hosts of `upgrade.py`: what holds an operation at a step, and a relay that lets a host
report but not receive.

Most hosts run inside `serve`. Those in `APART` are processes of their own, so that one can die while
the controller lives.
"""

import os
import select
import socket
import threading

from chaos_stage import Host
from stack import free_port

HOUR = 3600000
STEPS = ("create_mdev", "image", "define", "start", "stop", "reboot", "destroy", "pause", "unpause", "suspend",
         "resume", "snapshot", "crash_dump", "look", "receive", "migrate")
# The duration of the failing steps on `mute`; the host is cut off after half of it.
FAILS_AFTER = 6000
FAILING = ("start", "pause", "unpause", "suspend", "resume", "crash_dump", "receive")

# The slow steps of each host, in milliseconds.
HELD = {
    "quick": {},
    "quick2": {},
    "quick3": {},
    "quick4": {},
    "still": dict.fromkeys(STEPS, HOUR),
    "sender": {"migrate": HOUR},
    "sender2": {"migrate": HOUR},
    "landing": {"look": HOUR},
    "waking": {"start": HOUR},
    "failing": {},
    "mute": dict.fromkeys((*FAILING, "snapshot"), FAILS_AFTER),
    "gone": {},
    "dead": {},
    "leaver": {"migrate": HOUR},
    "ferry": {"migrate": HOUR},
    "shore": {},
    "loser": {"migrate": HOUR, "start": HOUR},
}
APART = ["mute", "gone", "dead", "leaver", "ferry", "shore", "loser"]
FAIL = {
    "failing": ['{ step = "start" }'],
    "mute": [f'{{ step = "{step}" }}' for step in FAILING]
    + ['{ step = "snapshot", server_name = "*failed" }'],
}
DESIRED = b"/desired"
CARDS = """
[card.m10]
vendor = "10de"
product = "13bd"
class = "030000"
driver = "nvidia"
exclusive_types = true
types = [{ id = "nvidia-35", name = "GRID M10-0B", available_instances = 24 }]

[card.x710]
vendor = "8086"
product = "158b"
class = "020000"
driver = "i40e"
"""
HOST = """
[[host]]
name = "%s"
address = "192.0.2.%d"
vcpus = 64
memory_mb = 65536
disk_gb = 1000
max_concurrent_builds = 100
traits = ["COMPUTE_NODE", "COMPUTE_ACCELERATORS", "CUSTOM_VGPU_LIVE_MIGRATION", "%s"]
card = [
    { card = "m10", addresses = ["0000:84:00.0", "0000:85:00.0"] },
    { card = "x710", addresses = [%s] },
]
devices = { enabled_mdev_types = ["nvidia-35"] }
pci.device_spec = ['{"vendor_id": "8086", "product_id": "158b", "resource_class": "X710"}']
fake = [{ count = 16 }]
times_ms = { %s }
fail = [%s]
"""


def only(host):
    """The trait that this host alone has."""
    return f"CUSTOM_{named(host).upper()}"


def named(host):
    return host.replace(" ", "_")


def topology(path, hosts, held):
    """Writes a topology file; `held` adds what holds operations."""
    text = CARDS
    functions = ", ".join(f'"0000:40:{slot:02x}.0"' for slot in range(16))
    for host in hosts:
        times = HELD[host] if held else {}
        text += HOST % (named(host), list(HELD).index(host) + 1, only(host), functions,
                        ", ".join(f"{step} = {time}" for step, time in times.items()),
                        ", ".join(FAIL.get(host, []) if held else []))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


class Apart(Host):
    """A host in a separate process, behind a relay if it has one."""

    def __init__(self, serve, name, folder):
        super().__init__(serve, name, folder)
        self.folder, self.relay = folder, None

    def begin(self, held):
        """Starts it with or without what holds operations."""
        self.topology = topology(os.path.join(self.folder, f"{self.name}.toml"), [self.name], held)
        self.control = self.relay and self.relay.url
        self.start()


class Relay:
    """Passes bytes between hosts and a controller. Once it is mute, it drops what the controller sends to the hosts."""

    def __init__(self, serve):
        self.port, self.to, self.mute = free_port(), serve.port, False
        self.url = f"http://127.0.0.1:{self.port}"
        self.socket = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                host, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.carry, args=(host,), daemon=True).start()

    def carry(self, host):
        with host:
            polls = False
            try:
                with socket.create_connection(("127.0.0.1", self.to)) as control:
                    while True:
                        for ready in select.select([host, control], [], [])[0]:
                            data = ready.recv(65536)
                            if not data:
                                return
                            if ready is host:
                                # A request's head arrives in one piece.
                                polls = DESIRED in data.split(b"\r\n", 1)[0]
                                control.sendall(data)
                            elif not (polls and self.mute):
                                host.sendall(data)
            except OSError:
                return

    def close(self):
        self.socket.close()
