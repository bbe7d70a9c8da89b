"""Backends of the lab's Cinder whose targets are in a node's kernel: files on an NFS export, and namespaces of NVMe over TCP.

Both are in a directory of one node, which the other one reaches at the address of the migration network, and the node
itself through its loopback interface.
"""

import uuid

FOLDER = "/srv/volumes"
NQN = "nqn.2014-08.org.nvmexpress:lab:{}"
PORT = 4420


class OfNode:
    """A backend with a file per volume on a node."""

    def __init__(self, node):
        self.node, self.address = node, f"10.98.0.{node.number}"
        node.run(f"mkdir -p {FOLDER}")

    def file(self, volume):
        """The file of a volume, on the node."""
        return f"{FOLDER}/volume-{volume}"

    def create(self, volume, gib, content=None):
        """A new empty volume; it has no password."""
        assert not content
        self.node.run(f"truncate -s {gib}G {self.file(volume)} && chmod 0660 {self.file(volume)}")

    def delete(self, volume):
        """Removes a volume."""
        self.node.run(f"rm {self.file(volume)}")

    def allow(self, volume, initiator):
        """Any host may use a volume."""

    refuse = allow

    def sessions(self, volume):  # pylint: disable=unused-argument
        """There are no sessions for each volume."""
        return []

    def read(self, volume, sector):
        """The text of a sector."""
        return self.node.run(f"dd if={self.file(volume)} bs=512 skip={sector} count=1 iflag=direct 2>/dev/null | tr -d '\\000'").strip()

    def write(self, volume, sector, content):
        """Writes text to a sector."""
        self.node.run(f"printf '%s' '{content}' | dd of={self.file(volume)} bs=512 seek={sector} conv=notrunc,sync,fsync 2>/dev/null")


class Exports(OfNode):
    """Files on an NFS export (Cinder's generic NFS driver)."""

    def __init__(self, node):
        super().__init__(node)
        node.run("modprobe nfsd; systemctl start rpcbind nfs-server && "
                 f"exportfs -o rw,sync,no_subtree_check,no_root_squash 10.98.0.0/24:{FOLDER}", timeout=300)

    def info(self, volume, password, connector):  # pylint: disable=unused-argument
        """What Cinder tells the host about its connection."""
        return {"driver_volume_type": "nfs", "export": f"{self.address}:{FOLDER}", "name": f"volume-{volume}", "options": None,
                "format": "raw", "mount_point_base": "/var/lib/cinder/mnt"}


class Subsystems(OfNode):
    """A subsystem with one namespace per volume (Cinder's LVM driver with `target_helper = nvmet`)."""

    AT = "/sys/kernel/config/nvmet"

    def __init__(self, node):
        super().__init__(node)
        port = f"{self.AT}/ports/1"
        node.run("mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config; modprobe -a nvmet nvmet_tcp; "
                 f"mkdir {port} && cd {port} && echo tcp >addr_trtype && echo ipv4 >addr_adrfam && echo {self.address} >addr_traddr "
                 f"&& echo {PORT} >addr_trsvcid", timeout=300)

    def create(self, volume, gib, content=None):
        super().create(volume, gib, content)
        place = f"{self.AT}/subsystems/{NQN.format(volume)}"
        self.node.run(
            f"mkdir {place} && cd {place} && echo 1 >attr_allow_any_host && mkdir namespaces/1 && cd namespaces/1 "
            f"&& echo -n {self.file(volume)} >device_path && echo {uuid.UUID(volume)} >device_uuid && echo 1 >enable "
            f"&& ln -s {place} {self.AT}/ports/1/subsystems/")

    def delete(self, volume):
        place = f"{self.AT}/subsystems/{NQN.format(volume)}"
        self.node.run(f"rm {self.AT}/ports/1/subsystems/{NQN.format(volume)}; echo 0 >{place}/namespaces/1/enable; "
                      f"rmdir {place}/namespaces/1 {place}")
        super().delete(volume)

    def info(self, volume, password, connector):  # pylint: disable=unused-argument
        """What Cinder tells the host about its connection."""
        return {"driver_volume_type": "nvmeof", "target_nqn": NQN.format(volume), "vol_uuid": volume,
                "portals": [[self.address, PORT, "tcp"]], "ns_id": 1}
