"""The iSCSI target of the lab's volumes: Debian's tgtd, in user space, on ports of 127.0.0.1.

The nodes reach it through QEMU's user network, so it needs no node and survives the loss of either. A volume is a
sparse file and a target with one LUN, which only the initiator of a connected host may log in to, with a password.
"""

import os
import re
import secrets
import shutil
import subprocess
import time

from stack import Wrong, free_port

IQN = "iqn.2010-10.org.openstack:volume-{}"
LUN = 1


class Target:
    """A running tgtd with its files in a directory. `gateway` is its address for hosts."""

    def __init__(self, unpacked, folder, gateway):
        self.programs, self.folder, self.gateway = os.path.join(unpacked, "usr/sbin"), folder, gateway
        # A second portal is a second path to each volume.
        self.ports = [free_port()]
        self.libraries = ":".join(os.path.join(unpacked, place, "x86_64-linux-gnu") for place in ("usr/lib", "lib"))
        self.process, self.numbers = None, {}
        os.makedirs(folder, exist_ok=True)

    def _environment(self):
        return {**os.environ, "TGT_IPC_SOCKET": os.path.join(self.folder, "tgtd"), "LD_LIBRARY_PATH": self.libraries}

    def start(self, pid_file):
        """Starts it and waits until it answers."""
        with open(os.path.join(self.folder, "tgtd.log"), "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(self.programs, "tgtd"), "-f", "-C", "0", "--pid-file", pid_file,
                 "--iscsi", f"portal=127.0.0.1:{self.ports[0]}"],
                env=self._environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        # In the foreground tgtd writes no file; the argument shows whose process it is (run.py).
        with open(pid_file, "w", encoding="utf-8") as file:
            file.write(str(self.process.pid))
        deadline = time.monotonic() + 30
        while self._ask("--op", "show", "--mode", "target").returncode:
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(os.path.join(self.folder, "tgtd.log"), encoding="utf-8", errors="replace") as log:
                    raise Wrong(f"tgtd did not start:\n{log.read()[-1500:]}")
            time.sleep(0.1)

    def add_portal(self):
        """Adds a portal; returns its port."""
        port = free_port()
        self._tell("--op", "new", "--mode", "portal", "--param", f"portal=127.0.0.1:{port}")
        self.ports.append(port)
        return port

    def stop(self):
        """Stops it."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _ask(self, *words):
        return subprocess.run([os.path.join(self.programs, "tgtadm"), "-C", "0", "--lld", "iscsi", *words],
                              env=self._environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=30, check=False)

    def _tell(self, *words):
        done = self._ask(*words)
        if done.returncode:
            raise Wrong(f"tgtadm {' '.join(words)}: {done.stderr}")

    def file(self, name):
        """The file of a volume or of a snapshot."""
        return os.path.join(self.folder, name)

    def create(self, volume, gib, content=None):
        """A new volume, empty or with the content of a file."""
        with open(self.file(volume), "wb") as file:
            file.truncate(gib << 30)
        if content:
            self.fill(volume, content)
        number = max(self.numbers.values(), default=0) + 1
        self.numbers[volume] = number
        tid = str(number)
        self._tell("--op", "new", "--mode", "target", "--tid", tid, "-T", IQN.format(volume))
        self._tell("--op", "new", "--mode", "logicalunit", "--tid", tid, "--lun", str(LUN), "-b", self.file(volume))
        password = secrets.token_hex(8)
        self._tell("--op", "new", "--mode", "account", "--user", volume, "--password", password)
        self._tell("--op", "bind", "--mode", "account", "--tid", tid, "--user", volume)
        return password

    def fill(self, volume, content):
        """Replaces the data of a volume, from its beginning, by a file's. The rest becomes empty."""
        size = os.path.getsize(self.file(volume))
        with open(self.file(volume), "r+b") as file:
            file.truncate(0)
            with open(content, "rb") as source:
                shutil.copyfileobj(source, file)
            file.truncate(size)

    def copy(self, name, volume):
        """A copy of a volume's data, with its holes."""
        subprocess.run(["cp", "--sparse=always", self.file(volume), self.file(name)], check=True)

    def delete(self, volume):
        """Removes a volume."""
        number = self.numbers.pop(volume)
        self._tell("--op", "delete", "--mode", "target", "--force", "--tid", str(number))
        self._tell("--op", "delete", "--mode", "account", "--user", volume)
        os.remove(self.file(volume))

    def allow(self, volume, initiator):
        """Lets a host's initiator log in."""
        self._tell("--op", "bind", "--mode", "target", "--tid", str(self.numbers[volume]), "-Q", initiator)

    def refuse(self, volume, initiator):
        """Revokes its login; an existing session stays."""
        self._tell("--op", "unbind", "--mode", "target", "--tid", str(self.numbers[volume]), "-Q", initiator)

    def sessions(self, volume):
        """The initiators that are logged in."""
        shown = self._ask("--op", "show", "--mode", "conn", "--tid", str(self.numbers[volume])).stdout
        return sorted(re.findall(r"^\s*Initiator: (\S+)", shown, re.M))

    def info(self, volume, password, connector):
        """What Cinder tells the host about its connection."""
        portals = [f"{self.gateway}:{port}" for port in self.ports]
        info = {"driver_volume_type": "iscsi", "target_portal": portals[0], "target_iqn": IQN.format(volume), "target_lun": LUN,
                "target_discovered": False, "auth_method": "CHAP", "auth_username": volume, "auth_password": password}
        if connector.get("multipath"):
            info.update(target_portals=portals, target_iqns=[IQN.format(volume)] * len(portals), target_luns=[LUN] * len(portals))
        return info

    def read(self, volume, sector):
        """The text of a sector."""
        with open(self.file(volume), "rb") as file:
            file.seek(sector * 512)
            return file.read(512).rstrip(b"\0 ").decode("utf-8", "replace")

    def write(self, volume, sector, content):
        """Writes text to a sector of a volume that is connected to no host."""
        with open(self.file(volume), "r+b") as file:
            file.seek(sector * 512)
            file.write(content.encode().ljust(512, b"\0"))
