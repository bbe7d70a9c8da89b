"""The guests' images: the cloud kernel, an initial RAM disk with files/guest-init, tiny root disks.

The guests have no distribution: busybox, a dozen modules and one script. Their kernel is stored
uncompressed and booted through its PVH entry point, because decompression takes seconds on an emulated host.
"""

import os
import shutil
import struct
import subprocess
import tempfile

from build.cache import run, text
from build.debian import HERE, download, kernel, lines, unpack
from build.kernel import copy_plain, files
from stack import Wrong

FLAVOUR = "cloud-amd64"
BUSYBOX = "/bin/busybox"
# Root disks by the name that they report, and their size in MiB.
DISKS = {"lab": 16, "other": 16}


# Decompressors by the first bytes of the compressed data.
UNPACKERS = {b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\0": "xz", b"\x1f\x8b": "gzip"}


def parts():
    """The inputs that decide whether the guest files are rebuilt."""
    return [kernel(FLAVOUR), lines("guest-modules"), DISKS, list(UNPACKERS.values()), text(BUSYBOX),
            text(os.path.join(HERE, "files", "guest-init"))]


def make(folder):
    """Fills a directory: `vmlinux`, `initrd.gz` and one `<name>.raw` per disk."""
    package, release, version = kernel(FLAVOUR)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        tree = os.path.join(work, "tree")
        for deb in download(work, f"{package}={version}"):
            unpack(deb, tree)
        unpacked(os.path.join(tree, "boot", f"vmlinuz-{release}"), os.path.join(folder, "vmlinux"))
        run("depmod", "-b", tree, release)
        inside = os.path.join(work, "initrd")
        os.makedirs(os.path.join(inside, "bin"))
        shutil.copy(BUSYBOX, os.path.join(inside, "bin/busybox"))
        shutil.copy(os.path.join(HERE, "files", "guest-init"), os.path.join(inside, "init"))
        os.chmod(os.path.join(inside, "init"), 0o755)
        copy_plain(files(tree, release, lines("guest-modules")), os.path.join(inside, "modules"))
        archive(inside, os.path.join(folder, "initrd.gz"))
        for name, size in DISKS.items():
            disk(work, name, size, os.path.join(folder, f"{name}.raw"))


def unpacked(packed, target):
    """Extracts the kernel from a bzImage by its header (Documentation/arch/x86/boot.rst)."""
    with open(packed, "rb") as file:
        image = file.read()
    sectors, = struct.unpack_from("<B", image, 0x1F1)
    offset, length = struct.unpack_from("<II", image, 0x248)
    begin = (sectors + 1) * 512 + offset
    # The uncompressed size follows the compressed data.
    inside = image[begin:begin + length - 4]
    program = next((program for begins, program in UNPACKERS.items() if inside.startswith(begins)), None)
    if not program:
        raise Wrong(f"{packed} has an unknown compression: {inside[:4].hex()}")
    with open(target, "wb") as out:
        done = subprocess.run([program, "-dc"], input=inside, stdout=out, stderr=subprocess.PIPE, timeout=120, check=False)
    if done.returncode:
        raise Wrong(f"{packed} could not be decompressed: {done.stderr.decode()}")
    run("strip", "--strip-debug", target)


def archive(inside, target):
    """Builds an initial RAM disk from a directory."""
    command = "find . | LC_ALL=C sort | cpio -o -H newc --quiet --owner 0:0 | gzip -1"
    with open(target, "wb") as out:
        done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], cwd=inside, stdout=out,
                              stderr=subprocess.PIPE, timeout=300, check=False)
    if done.returncode:
        raise Wrong(f"the initial RAM disk could not be packed: {done.stderr.decode()}")


def disk(work, name, size, target):
    """Builds an ext4 disk without partitions that contains its name."""
    inside = os.path.join(work, f"disk-{name}")
    os.makedirs(inside)
    with open(os.path.join(inside, "name"), "w", encoding="utf-8") as file:
        file.write(f"{name}\n")
    with open(target, "wb") as file:
        file.truncate(size << 20)
    run("mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum,^has_journal", "-m", "0", "-d", inside, target)
