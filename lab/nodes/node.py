"""A node for the scenarios: power, commands inside by ssh, waits, logs.

Every wait has a timeout: five times the duration measured on two idle cores.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time

from build.cache import run
from nodes.machine import Machine
from stack import Wrong

READY = re.compile(r"node: [0-9.]+ READY (\S+)")
PATIENCE = float(os.environ.get("KILONOVA_LAB_PATIENCE", "1"))
# Collected from a node after a failure.
LOGS = ("/var/log/agent.log", "/var/log/journal.log", "/var/log/libvirt", "/etc/mdevctl.d", "/etc/libvirt/qemu",
        "/var/lib/kilonova-agent")


def keys(folder):
    """Creates the folder that a run shares with its nodes, and two SSH keys: one to enter the nodes, and
    one for the nodes to enter each other."""
    share = os.path.join(folder, "share")
    os.makedirs(share, mode=0o700, exist_ok=True)
    for key in (os.path.join(folder, "key"), os.path.join(share, "peer")):
        if not os.path.exists(key):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", key)
    shutil.copy(os.path.join(folder, "key.pub"), share)


class Node(Machine):
    """A virtual compute host."""

    def __init__(self, number, folder, built):
        super().__init__(number, folder, built)
        self.boots = len(READY.findall(self.console_text()))

    def console_text(self):
        """Its complete console."""
        try:
            with open(self.console, encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def ready(self, timeout=300):
        """Waits until it has booted once more than before."""
        deadline = time.monotonic() + timeout * PATIENCE
        while True:
            said = self.console_text()
            if len(READY.findall(said)) > self.boots:
                self.boots += 1
                return
            if "Kernel panic" in said.rpartition("READY")[2] or not self.running():
                raise Wrong(f"{self.name} died while it booted; see {self.console}")
            if time.monotonic() > deadline:
                raise Wrong(f"{self.name} was not ready after {timeout * PATIENCE:.0f} s; see {self.console}")
            time.sleep(0.2)

    def ssh(self):
        """The command that enters it."""
        return ["ssh", "-F", "none", "-i", os.path.join(self.folder, "key"), "-p", str(self.port),
                "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=60",
                # An emulated processor may miss its timer and stay idle: outside traffic wakes it.
                "-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=90",
                "-o", "ControlMaster=auto", "-o", f"ControlPath={self.path('ssh')}",
                "-o", "ControlPersist=yes", "root@127.0.0.1"]

    def leave(self):
        """Closes the shared ssh connection."""
        if os.path.exists(self.path("ssh")):
            subprocess.run([*self.ssh()[:-1], "-O", "exit", "root@127.0.0.1"], check=False,
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=30)

    def run(self, command, timeout=120, fails=False):
        """Runs a shell command inside and returns what it printed."""
        code, out = self.attempt(command, timeout)
        if (code != 0) != fails:
            raise Wrong(f"{self.name}: {command}: exit code {code}:\n{out[-2000:]}")
        return out

    def attempt(self, command, timeout=120):
        """Like `run`, with any exit code: returns the code and the output."""
        # The shared connection must not outlive this call's pipes, so its errors go to a file.
        try:
            with tempfile.TemporaryFile() as err:
                done = subprocess.run([*self.ssh(), f"({command}) 2>&1"], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=err,
                                      timeout=timeout * PATIENCE, check=False)
                err.seek(0)
                out = done.stdout + err.read()
        except subprocess.TimeoutExpired:
            raise Wrong(f"{self.name}: did not end within {timeout * PATIENCE:.0f} s: {command}") from None
        return done.returncode, out.decode("utf-8", "replace").strip()

    def write(self, path, content, mode="0644"):
        """Writes a file inside."""
        done = subprocess.run(
            [*self.ssh(), f"mkdir -p {shlex.quote(os.path.dirname(path))}; umask 077; "
                          f"cat >{shlex.quote(path)} && chmod {mode} {shlex.quote(path)}"],
            input=content.encode() if isinstance(content, str) else content, capture_output=True,
            timeout=300 * PATIENCE, check=False)
        if done.returncode:
            raise Wrong(f"{self.name}: {path} was not written: {done.stderr.decode()}")

    def until(self, command, holds, what, timeout=120):
        """Repeats a command inside until its output satisfies a condition."""
        deadline = time.monotonic() + timeout * PATIENCE
        while True:
            _, out = self.attempt(command)
            if holds(out):
                return out
            if time.monotonic() > deadline:
                raise Wrong(f"{self.name}: after {timeout * PATIENCE:.0f} s: not true: {what}:\n{out[-1500:]}")
            time.sleep(0.5)

    def reboot(self, timeout=300):
        """Resets it and waits until it is ready."""
        self.leave()
        self.reset()
        self.ready(timeout)

    def shut(self):
        """Syncs its disks and powers it off."""
        self.attempt("sync; mount -o remount,ro / 2>/dev/null", timeout=60)
        self.leave()
        self.kill()

    def collect(self, folder):
        """Copies its logs into a directory, as far as it still responds."""
        try:
            with open(os.path.join(folder, f"{self.name}.tar"), "wb") as file:
                subprocess.run([*self.ssh(), "dmesg >/var/log/dmesg; journalctl -u kilonova-agent -o cat "
                                ">/var/log/agent.log; journalctl -b >/var/log/journal.log; virsh -c qemu:///system list --all "
                                ">/var/log/domains 2>&1; tar -C / -cf - --ignore-failed-read --exclude=_base --exclude='*.qcow2' --exclude='disk*' "
                                "var/log/dmesg var/log/domains " + " ".join(path[1:] for path in LOGS)
                                + " 2>/dev/null"],
                               stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.DEVNULL,
                               timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return
