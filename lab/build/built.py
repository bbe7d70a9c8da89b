"""The locations of the lab's parts."""

import os


class Built:
    """The directories of kernel, guest files and node image, the nodes' base disk, and the directory of the target."""

    def __init__(self, kernel, guest, node, image, target=None):
        self.vmlinuz = os.path.join(kernel, "vmlinuz")
        self.initrd = os.path.join(node, "initrd.gz")
        self.guest, self.image = guest, image
        self.format = "qcow2" if image.endswith(".qcow2") else "raw"
        self.target = target
