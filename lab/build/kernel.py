"""The nodes' kernel, and the two modules that the lab builds itself.

The kernel, its headers and its source are unpacked, never installed. `mtty` is the kernel's own sample
of a mediated device. `vfio` is the stock module with the IOVA bitmaps linked in: Debian's build has no
IOMMUFD, and without it mtty cannot log dirty pages and a guest with an mtty cannot migrate. The rest of
the kernel is unchanged, and its other modules load on top.
"""

import lzma
import os
import shutil
import tarfile
import tempfile

from build.cache import run
from build.debian import download, kernel, lines, unpack
from stack import Wrong

FLAVOUR = "amd64"
SOURCES = {
    "mtty": ["samples/vfio-mdev/mtty.c"],
    "vfio": [f"drivers/vfio/{name}" for name in (
        "vfio_main.c", "group.c", "container.c", "virqfd.c", "vfio.h")]
    + ["drivers/iommu/iommufd/iova_bitmap.c"],
}
MAKEFILES = {
    "mtty": "obj-m += mtty.o\n",
    "vfio": "obj-m += vfio.o\n"
            "vfio-y := vfio_main.o group.o container.o virqfd.o iova_bitmap.o\n"
            "ccflags-y += -DCONFIG_IOMMUFD_DRIVER=1\n",
}
# Modules that are needed to find the node's root file system.
EARLY = ["virtio_blk", "crc32c_generic", "ext4"]


def parts():
    """The inputs that decide whether the kernel is rebuilt."""
    return [kernel(FLAVOUR), SOURCES, MAKEFILES, lines("modules"), EARLY]


def make(folder):
    """Fills a directory: `vmlinuz`, `modules` (a tree for the nodes) and `early` (in load order)."""
    package, release, version = kernel(FLAVOUR)
    series = ".".join(release.split(".")[:2])
    headers = f"linux-headers-{release}"
    common = headers.removesuffix(f"-{FLAVOUR}") + "-common"
    kbuild = f"linux-kbuild-{release.removesuffix(f'-{FLAVOUR}')}"
    with tempfile.TemporaryDirectory(dir=folder) as work:
        tree = os.path.join(work, "tree")
        for deb in download(work, *(f"{name}={version}" for name in (
                package, headers, common, kbuild, f"linux-source-{series}"))):
            unpack(deb, tree)
            os.remove(deb)
        shutil.copy(os.path.join(tree, "boot", f"vmlinuz-{release}"),
                    os.path.join(folder, "vmlinuz"))
        sources(os.path.join(tree, "usr/src", f"linux-source-{series}.tar.xz"), work)
        # The headers refer to each other by absolute paths, as if installed.
        makefile = os.path.join(tree, "usr/src", headers, "Makefile")
        with open(makefile, "w", encoding="utf-8") as file:
            file.write(f"include {tree}/usr/src/{common}/Makefile\n")
        built = {name: build(work, tree, headers, name) for name in SOURCES}
        if not os.path.isdir(os.path.join(tree, "usr/lib/modules")):
            os.makedirs(os.path.join(tree, "usr/lib"), exist_ok=True)
            shutil.move(os.path.join(tree, "lib/modules"), os.path.join(tree, "usr/lib/modules"))
        shutil.rmtree(os.path.join(tree, "lib"), ignore_errors=True)
        os.symlink("usr/lib", os.path.join(tree, "lib"))
        install(tree, release, built)
        pick(tree, release, folder)
    with open(os.path.join(folder, "release"), "w", encoding="utf-8") as file:
        file.write(release)


def sources(archive, work):
    """Extracts the few necessary files of the kernel source in one pass."""
    wanted = {path: name for name, paths in SOURCES.items() for path in paths}
    with tarfile.open(archive, "r|xz") as tar:
        for member in tar:
            path = member.name.partition("/")[2]
            if path in wanted:
                target = os.path.join(work, wanted.pop(path))
                os.makedirs(target, exist_ok=True)
                with open(os.path.join(target, os.path.basename(path)), "wb") as file:
                    shutil.copyfileobj(tar.extractfile(member), file)
            if not wanted:
                return
    raise Wrong(f"the kernel's source has no {', '.join(wanted)}")


def build(work, tree, headers, name):
    """Builds one module, without debug information."""
    source = os.path.join(work, name)
    with open(os.path.join(source, "Makefile"), "w", encoding="utf-8") as file:
        file.write(MAKEFILES[name])
    # Type information of modules would need `pahole`, and nothing uses it.
    run("nice", "make", "-C", os.path.join(tree, "usr/src", headers), f"M={source}",
        "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules")
    module = os.path.join(source, f"{name}.ko")
    run("strip", "--strip-debug", module)
    return module


def install(tree, release, built):
    """Installs the modules into the kernel's tree and updates the dependencies."""
    place = os.path.join(tree, "usr/lib/modules", release)
    stock = os.path.join(place, "kernel/drivers/vfio/vfio.ko")
    for name in (stock, f"{stock}.xz"):
        if os.path.exists(name):
            os.remove(name)
    shutil.copy(built["vfio"], stock)
    os.makedirs(os.path.join(place, "extra"))
    shutil.copy(built["mtty"], os.path.join(place, "extra/mtty.ko"))
    run("depmod", "-b", tree, release)


def files(tree, release, names):
    """The files of modules and their dependencies, in load order."""
    found = []
    for name in names:
        output = run("modprobe", "-d", tree, "-S", release, "--show-depends", name)
        for line in output.splitlines():
            words = line.split()
            if words[:1] == ["insmod"] and words[1] not in found:
                found.append(words[1])
    return found


def pick(tree, release, folder):
    """Keeps the modules that a node loads, and separately those that are needed to find its disk."""
    base = os.path.join("usr/lib/modules", release)
    target = os.path.join(folder, "modules", base)
    for path in files(tree, release, [*EARLY, *lines("modules")]):
        inside = path.split(f"lib/modules/{release}/", 1)[1]
        os.makedirs(os.path.dirname(os.path.join(target, inside)), exist_ok=True)
        shutil.copy(path, os.path.join(target, inside))
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(os.path.join(tree, base, name), target)
    os.symlink("usr/lib", os.path.join(folder, "modules", "lib"))
    run("depmod", "-b", os.path.join(folder, "modules"), release)
    copy_plain(files(tree, release, EARLY), os.path.join(folder, "early"))


def copy_plain(paths, folder):
    """Copies modules uncompressed, for busybox, and writes their order into the file `order`."""
    os.makedirs(folder)
    with open(os.path.join(folder, "order"), "w", encoding="utf-8") as order:
        for path in paths:
            name = os.path.basename(path).removesuffix(".xz")
            opened = lzma.open(path) if path.endswith(".xz") else open(path, "rb")
            with opened as source, open(os.path.join(folder, name), "wb") as target:
                shutil.copyfileobj(source, target)
            order.write(f"{name}\n")
