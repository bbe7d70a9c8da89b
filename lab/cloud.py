"""The controller of the lab, and the stock client against it.

`kilonova serve` runs on the machine itself and listens on 127.0.0.1; the nodes reach it through QEMU's
user network as 10.0.2.2. The scenarios act through the stock `openstack` client. They poll over HTTP,
because each start of the client costs seconds on a busy machine.
"""

import copy
import os
import sys
import time

from cli import Clients, Lane
from guest import COMMAND_LINE, GuestLog
from nodes.node import PATIENCE
from stack import Api, Gone, Serve, Wrong, unsettled

# The address of the machine's 127.0.0.1 as the nodes see it.
GATEWAY = "10.0.2.2"
RESOURCE = ["--vcpus", "1", "--ram", "192", "--disk", "1"]


class Asked(Api):
    """Like `Api`, but with a new connection per request, as minutes may pass between two, and with a new token from `renew` after a
    refusal: a token is valid for an hour, and a scenario may take longer."""

    renew = None

    def ask(self, *words, **more):
        self.close()
        answer = super().ask(*words, **more)
        if answer[0] == 401 and self.renew:
            self.token = self.renew()
            self.close()
            answer = super().ask(*words, **more)
        return answer


class Cloud(Lane):
    """A lane of the stock client, with shortcuts for the scenarios."""

    def __init__(self, program, openstack, folder, guest, config=None, brief=False):
        state = os.path.join(folder, "cloud")
        os.makedirs(state, exist_ok=True)
        self.folder, self.guest = folder, guest
        self.serve = Serve(os.path.abspath(program), state, config=config)
        super().__init__(Clients(openstack, os.path.join(state, "clouds.yaml"), brief))
        self.api, self.name = None, None
        # The servers created here, and those of each lane.
        self.made, self.lanes = set(), {}

    def lane(self, name):
        """The same cloud for parallel scenarios: it tracks its own servers and labels its output."""
        lane = copy.copy(self)
        lane.name, lane.made = name, set()
        lane.lanes[name] = lane.made
        lane.api = self._asked()
        return lane

    def foreign(self):
        """The servers of the other lanes."""
        return set().union(*(made for name, made in self.lanes.items() if name != self.name))

    def _asked(self):
        api = Asked(self.serve.url, timeout=60)
        api.login(self.openrc())
        api.renew = lambda: self._token(self.serve.url)
        return api

    def _token(self, url):
        """A new token of the administrator, from the Identity API at a URL."""
        api = Asked(url, timeout=60)
        api.login(self.openrc())
        return api.token

    def openrc(self):
        """The administrator's variables."""
        return self.serve.openrc()

    def say(self, text=""):
        if self.name:
            text = "\n".join(f"{self.name:>8} │ {line}" for line in text.strip("\n").split("\n"))
        # One write, so that lanes do not mix their lines.
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def run(self, *arguments, fails=False):
        answer = super().run(*arguments, fails=fails)
        if arguments[:2] == ("server", "create") and not fails:
            self.made.add(answer.table["id"])
        return answer

    def start(self):
        """Starts the controller."""
        said = self.serve.start(timeout=120 * PATIENCE)
        with open(os.path.join(self.folder, "serve.pid"), "w", encoding="utf-8") as file:
            file.write(str(self.serve.process.pid))
        self.api = self._asked()
        return said

    def heading(self, text):
        self.say(f"\n── {text} " + "─" * max(0, 88 - len(text)))

    def images(self):
        """Uploads kernel, RAM disk and the root disks that name them."""
        self.heading("Images: a kernel, a RAM disk, and root disks that boot with them")
        found = {}
        for name, file, kind in (("lab-kernel", "vmlinux", "aki"), ("lab-ramdisk", "initrd.gz", "ari")):
            found[name] = self.run("image", "create", name, "--disk-format", kind, "--container-format",
                                   kind, "--file", os.path.join(self.guest, file),
                                   "-c", "id", "-c", "status", "-c", "size").table["id"]
        for name in ("lab", "other"):
            made = self.run(
                "image", "create", name, "--disk-format", "raw", "--container-format", "bare",
                "--file", os.path.join(self.guest, f"{name}.raw"),
                "--property", f"kernel_id={found['lab-kernel']}",
                "--property", f"ramdisk_id={found['lab-ramdisk']}",
                "--property", f"os_command_line={COMMAND_LINE}",
                "--property", "hw_machine_type=q35", "-c", "id", "-c", "status", "-c", "size")
            self.tick(f"the image {name} is active", made.table["status"] == "active")

    def flavor(self, name, *properties):
        """A flavor with these extra specs."""
        words = [word for pair in properties for word in ("--property", pair)]
        self.run("flavor", "create", name, *RESOURCE, *words, "-c", "id", "-c", "properties")

    def boot(self, flavor, name, *more, image="lab", network="none", drive="true", status="ACTIVE",
             timeout=300):
        """Creates a server and waits for its status; returns it as the API shows it."""
        where = [] if network is None else ["--nic", network]
        made = self.run("server", "create", "--flavor", flavor, "--image", image, *where,
                        "--config-drive", drive, *more, name, "-c", "id", "-c", "name")
        return self.status(made.table["id"], status, timeout)

    def server(self, ident):
        """A server, as the API shows it."""
        return self.api.expect(200, "GET", f"/compute/v2.1/servers/{ident}")["server"]

    def find(self, name):
        """A server by its name."""
        found = [s for s in self.api.servers().values() if s["name"] == name]
        if len(found) != 1:
            raise Wrong(f"there are {len(found)} servers with the name {name}")
        return found[0]

    def status(self, ident, wanted, timeout=300):
        """Waits until a server has settled in a status."""
        deadline = time.monotonic() + timeout * PATIENCE
        while True:
            server = self.server(ident)
            state = f"{server['status']}/{server.get('OS-EXT-STS:task_state')}"
            if server["status"] == wanted and not unsettled({ident: server}):
                return server
            if server["status"] == "ERROR" and wanted != "ERROR" and not unsettled({ident: server}):
                raise Wrong(f"{server['name']} is in ERROR: {server.get('fault')}")
            if time.monotonic() > deadline:
                raise Wrong(f"{server['name']} is {state} after {timeout * PATIENCE:.0f} s, not {wanted}; "
                            f"{server.get('fault', '')}")
            time.sleep(0.5)

    def console(self, ident):
        """A server's console log."""
        status, _, answer = self.api.ask("POST", f"/compute/v2.1/servers/{ident}/action",
                                         {"os-getConsoleOutput": {}})
        return GuestLog(answer["output"] if status == 200 else "")

    def guest_log(self, ident, holds=lambda log: log.ready, what="its guest is up", timeout=240):
        """Waits until a guest's console log satisfies a condition. Fails if a booting guest prints nothing new for
        the timeout, if a booted guest does not satisfy the condition within the timeout, or after three timeouts: how
        fast an emulated processor boots depends on the machine's load."""
        begun = since = time.monotonic()
        printed = -1
        while True:
            log = self.console(ident)
            if holds(log):
                return log
            now = time.monotonic()
            if not log.ready and len(log.whole) > printed:
                printed, since = len(log.whole), now
            if now - since > timeout * PATIENCE or now - begun > 3 * timeout * PATIENCE:
                raise Wrong(f"{self.server(ident)['name']}: after {now - begun:.0f} s: not "
                            f"true: {what}; the end of its console log:\n{log.whole[-1500:]}")
            time.sleep(1)

    def hosts(self, wanted, timeout=180):
        """Waits until these hosts, and no others, are up as compute services."""
        deadline = time.monotonic() + timeout * PATIENCE
        while True:
            rows = self.api.expect(200, "GET", "/compute/v2.1/os-services?binary=nova-compute")["services"]
            up = {row["host"] for row in rows if row["state"] == "up"}
            if up == set(wanted):
                return rows
            if time.monotonic() > deadline:
                raise Wrong(f"after {timeout * PATIENCE:.0f} s the hosts {sorted(up)} are up, not {sorted(wanted)}")
            time.sleep(0.5)

    def devices(self, ident):
        """The device allocations of a server by provider name, without its host's own."""
        held = self.api.expect(200, "GET", f"/placement/allocations/{ident}")["allocations"]
        found = {}
        for provider, entry in held.items():
            name = self.api.expect(200, "GET", f"/placement/resource_providers/{provider}")["name"]
            rest = {kind: amount for kind, amount in entry["resources"].items()
                    if kind not in ("VCPU", "MEMORY_MB", "DISK_GB", "PCPU")}
            if rest:
                found[name] = rest
        return found

    def delete(self, *idents, timeout=180):
        """Deletes servers and waits until they are gone."""
        self.run("server", "delete", *idents)
        deadline = time.monotonic() + timeout * PATIENCE
        while any(self.api.ask("GET", f"/compute/v2.1/servers/{ident}")[0] != 404 for ident in idents):
            if time.monotonic() > deadline:
                raise Wrong(f"{len(idents)} server(s) were not deleted within {timeout * PATIENCE:.0f} s")
            time.sleep(0.5)

    def clean(self):
        """Deletes all remaining servers except those of other lanes, silently, and waits."""
        deadline = time.monotonic() + 180 * PATIENCE
        while left := set(self.api.servers()) - self.foreign():
            for ident in left:
                self.api.ask("DELETE", f"/compute/v2.1/servers/{ident}")
            if time.monotonic() > deadline:
                raise Wrong(f"{len(left)} server(s) of a scenario could not be deleted")
            time.sleep(1)

    def doctor(self):
        """The ledger audit. Work of other lanes may look incomplete for a moment."""
        deadline = time.monotonic() + 60 * PATIENCE
        while True:
            _, code, said = self.serve.doctor()
            if code == 0 or len(self.lanes) < 2 or time.monotonic() > deadline:
                break
            time.sleep(2)
        self.tick("doctor finds no problem", code == 0, said[-1500:])

    def stop(self):
        """Stops the controller."""
        if self.serve.running():
            try:
                self.serve.stop(timeout=20)
            except (Wrong, Gone):
                self.serve.kill()
