"""Where the parts of the lab lie, for whoever starts from them."""

import os


class Built:
    """The folders of kernel, guests' files and nodes' image, and the disk that nodes start from."""

    def __init__(self, kernel, guest, node, image):
        self.vmlinuz = os.path.join(kernel, "vmlinuz")
        self.initrd = os.path.join(node, "initrd.gz")
        self.guest, self.image = guest, image
        self.format = "qcow2" if image.endswith(".qcow2") else "raw"
