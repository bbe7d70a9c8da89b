"""One QEMU process: its command line, its monitor, its exit. Independent of the guest system.

The lab runs two. Each emulates an IOMMU, an SR-IOV network card, an SR-IOV NVMe controller and the AMD
virtualization extensions in software, so that no /dev/kvm is needed. A node reaches the machine only
through QEMU's user network, and the other node through unix sockets.
"""

import json
import os
import signal
import socket
import subprocess
import time

from build.cache import run
from stack import Wrong, free_port

MEMORY_MIB = 1536
# A node with NUMA cells has two, each on its own socket: the CPUs, the MiB of memory and the pages of 2 MiB of each.
CELL_CPUS, CELL_MIB, CELL_PAGES = 4, 1024, 120
# In emulation, an instruction that moves a string by bytes costs as much for each byte as one by quadwords for eight.
# Kernels, including the guests', clear and copy memory by bytes if the processor reports that this is fast.
PROCESSOR = "max,la57=off,erms=off,fsrm=off,fsrs=off,fsrc=off,fzrm=off"
# Links between the nodes: each link's name, and its byte in the MAC addresses of the cards.
LINKS = {"mig": 2, "lan": 3}


class Machine:
    """Node `number` (1 or 2) in the directory of the run."""

    def __init__(self, number, folder, built):
        self.number, self.folder, self.built = number, folder, built
        self.name = f"node{number}"
        self.console = self.path("console.log")
        self.port = self._kept_port()
        # True if it has NUMA cells from its next start on.
        self.cells = False

    def path(self, ending):
        """A file of this node."""
        return os.path.join(self.folder, f"{self.name}.{ending}")

    def _kept_port(self):
        """The port of its sshd on 127.0.0.1, stable during the run."""
        path = self.path("port")
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(str(free_port()))
        with open(path, encoding="utf-8") as file:
            return int(file.read())

    def command(self):
        """The command line."""
        n = self.number
        words = [
            "nice", "-n", "3", "qemu-system-x86_64", "-name", f"{self.name},process=kilonova-{self.name}",
            "-machine", "q35", "-accel", "tcg,thread=multi,tb-size=384", "-cpu", PROCESSOR,
            *(self._two_cells() if self.cells else ["-smp", "1", "-m", str(MEMORY_MIB)]),
            "-nodefaults", "-display", "none",
            "-device", "intel-iommu,intremap=on",
            "-kernel", self.built.vmlinuz, "-initrd", self.built.initrd,
            "-append", "console=ttyS0 panic=0 quiet intel_iommu=on iommu=pt mitigations=off no_timer_check "
                       f"net.ifnames=0 lab.node={n} systemd.hostname=node{n} "
                       f"systemd.machine_id=6b696c6f00004000800000000000{n:04d}"
                       + (f" hugepagesz=2M hugepages=0:{CELL_PAGES},1:{CELL_PAGES}" if self.cells else ""),
            "-drive", f"file={self.path('qcow2')},format=qcow2,if=none,id=d0,cache=unsafe,discard=unmap",
            "-device", "virtio-blk-pci,drive=d0",
            "-object", "rng-random,filename=/dev/urandom,id=r0", "-device", "virtio-rng-pci,rng=r0",
            "-fsdev", f"local,id=host,path={self.folder}/share,security_model=none,readonly=on",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
            "-netdev", f"user,id=ctl,hostfwd=tcp:127.0.0.1:{self.port}-:22",
            "-device", f"virtio-net-pci,netdev=ctl,mac=52:54:00:00:01:0{n},romfile=",
            "-chardev", f"file,id=console,path={self.console},append=on",
            "-serial", "chardev:console",
            "-qmp", f"unix:{self.path('qmp')},server=on,wait=off",
            "-pidfile", self.path("pid"),
        ]
        for link, last in LINKS.items():
            end = "server=on" if n == 1 else "server=off,reconnect-ms=500"
            words += ["-netdev", f"stream,id={link},{end},addr.type=unix,"
                                 f"addr.path={self.folder}/{link}.sock",
                      "-device", f"virtio-net-pci,netdev={link},mac=52:54:00:00:0{last}:0{n},romfile="]
        words += [
            "-device", "pcie-root-port,id=rp1,chassis=1,slot=1",
            "-netdev", "hubport,hubid=9,id=sink",
            "-device", "igb,bus=rp1,netdev=sink,romfile=",
            "-device", "pcie-root-port,id=rp2,chassis=2,slot=2",
            "-device", f"nvme-subsys,id=ss0,nqn=lab{n}",
            "-device", f"nvme,id=nv0,bus=rp2,serial=lab{n},subsys=ss0,max_ioqpairs=10,"
                       "msix_qsize=17,sriov_max_vfs=4,sriov_vq_flexible=8,sriov_vi_flexible=8",
            "-device", "edu,bus=pcie.0,addr=0x1a",
        ]
        return words

    @staticmethod
    def _two_cells():
        """The processors and the memory of a node with NUMA cells."""
        words = ["-smp", f"{2 * CELL_CPUS},sockets=2,cores={CELL_CPUS},threads=1", "-m", str(2 * CELL_MIB)]
        for cell in (0, 1):
            first = cell * CELL_CPUS
            words += ["-object", f"memory-backend-ram,id=cell{cell},size={CELL_MIB}M",
                      "-numa", f"node,nodeid={cell},cpus={first}-{first + CELL_CPUS - 1},memdev=cell{cell}"]
        return [*words, "-numa", "dist,src=0,dst=1,val=21"]

    def start(self):
        """Powers it on; its disk keeps the content of earlier runs."""
        if self.running():
            raise Wrong(f"{self.name} is already running (process {self.pid()})")
        disk = self.path("qcow2")
        if not os.path.exists(disk):
            run("qemu-img", "create", "-q", "-f", "qcow2", "-F", self.built.format, "-b", self.built.image, disk)
        for ending in ("qmp", "pid"):
            if os.path.exists(self.path(ending)):
                os.remove(self.path(ending))
        with open(self.path("qemu.log"), "ab") as log:
            process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log, start_new_session=True)
        deadline = time.monotonic() + 60
        while not self._answers():
            if process.poll() is not None or time.monotonic() > deadline:
                with open(self.path("qemu.log"), encoding="utf-8", errors="replace") as log:
                    raise Wrong(f"{self.name}: QEMU did not start:\n{log.read()[-1500:]}")
            time.sleep(0.05)

    def _answers(self):
        try:
            return self.running() and bool(self.ask("query-status"))
        except (OSError, ValueError):
            return False

    def pid(self):
        """The process id, if that process is still this node's QEMU."""
        try:
            with open(self.path("pid"), encoding="utf-8") as file:
                pid = int(file.read())
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                ours = self.path("qmp").encode() in file.read()
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                alive = file.read().rpartition(")")[2].split()[0] != "Z"
        except (OSError, ValueError):
            return None
        return pid if ours and alive else None

    def running(self):
        return self.pid() is not None

    def seconds(self):
        """Its processor time so far, in seconds."""
        pid = self.pid()
        if pid is None:
            return 0.0
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, command, **arguments):
        """Sends one command to its monitor."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(30)
            line.connect(self.path("qmp"))
            file = line.makefile("rw", encoding="utf-8")
            file.readline()
            answer = {}
            for name, words in (("qmp_capabilities", {}), (command, arguments)):
                file.write(json.dumps({"execute": name, "arguments": words}) + "\n")
                file.flush()
                answer = json.loads(file.readline())
                while "event" in answer:
                    answer = json.loads(file.readline())
            if "error" in answer:
                raise Wrong(f"{self.name}: {command}: {answer['error']['desc']}")
            return answer["return"]

    def reset(self):
        """Presses the reset button."""
        self.ask("system_reset")

    def kill(self):
        """Pulls the plug."""
        pid = self.pid()
        if pid is None:
            return
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        # A dying process no longer has a command line, but may still have its disk open.
        while self._exists(pid):
            if time.monotonic() > deadline:
                raise Wrong(f"{self.name}: process {pid} did not end")
            time.sleep(0.05)
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass

    @staticmethod
    def _exists(pid):
        """True if a thread of a process lives. Its first thread may be a zombie while others have its files open."""
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                is_zombie = file.read().rpartition(")")[2].split()[0] == "Z"
            return not is_zombie or len(os.listdir(f"/proc/{pid}/task")) > 1
        except OSError:
            return False
