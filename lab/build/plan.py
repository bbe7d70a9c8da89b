"""The lab's parts, in order. Each is built once and cached (cache.py)."""

import os
from concurrent.futures import ThreadPoolExecutor

from build import debian, guest, kernel, node, seed, target
from build.built import Built
from build.cache import Locked, thing


def build(say=print):
    """Builds what is missing."""
    with Locked(), ThreadPoolExecutor(max_workers=2) as pool:
        parts = [debian.NODE_SUITE, debian.mirror(), *debian.lines("packages")]
        # The root file system mostly waits for the network, the kernel for the processor.
        rooted = pool.submit(thing, "root", parts, debian.root, say)
        kernel_folder = thing("kernel", kernel.parts(), kernel.make, say)
        guest_folder = thing("guest", guest.parts(), guest.make, say)
        target_folder = thing("target", target.parts(), target.make, say)
        root = rooted.result()
        node_folder = thing("node", node.parts(os.path.basename(root), os.path.basename(kernel_folder)),
                            node.make(root, kernel_folder), say)
        made = (kernel_folder, guest_folder, node_folder)
        seeded = thing("seed", [os.path.basename(kernel_folder), os.path.basename(node_folder)],
                       seed.make(*made), say)
    return Built(*made, os.path.join(seeded, "seed.qcow2"), target_folder)
