"""The iSCSI target of the lab's volumes: Debian's tgtd with its libraries, unpacked and never installed, because the
package starts a daemon that listens on every address.
"""

import os
import re

from build.cache import run
from build.debian import download, unpack
from stack import Wrong

PACKAGE = "tgt"
# Libraries of tgtd that a machine may lack; the names of their packages end differently in each release.
LIBRARIES = r"lib(?:aio1|ibverbs1|rdmacm1|nl-3|nl-route-3)\S*"


def parts():
    """The packages with their versions."""
    relations = [f"--no-{word}" for word in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    needed = run("apt-cache", "depends", "--recurse", *relations, PACKAGE)
    names = [PACKAGE, *sorted(set(re.findall(rf"^{LIBRARIES}$", needed, re.M)))]
    shown = [re.search(r"^Version: (\S+)$", run("apt-cache", "show", name), re.M) for name in names]
    if not all(shown):
        raise Wrong(f"apt lacks {', '.join(name for name, found in zip(names, shown) if not found)}; run scripts/bootstrap.sh lab")
    return [f"{name}={found.group(1)}" for name, found in zip(names, shown)]


def make(folder):
    """Fills a directory with the files of the packages."""
    for deb in download(folder, *parts()):
        unpack(deb, folder)
        os.remove(deb)
