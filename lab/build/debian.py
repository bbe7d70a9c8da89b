"""Debian's part of the lab: versions from apt's lists, packages, and the nodes' root file system.

The lab pins no version: the backports suite drops old kernels, so each build asks apt for the current
one.
"""

import glob
import os
import re
import shutil
import subprocess

from build.cache import run
from stack import Wrong

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The nodes' Debian release: its QEMU and libvirt support migration of mediated devices.
NODE_SUITE = "trixie"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def backports():
    """The name of this Debian's backports suite."""
    with open("/etc/os-release", encoding="utf-8") as file:
        name = re.search(r"^VERSION_CODENAME=(\S+)", file.read(), re.M)
    if not name:
        raise Wrong("/etc/os-release has no VERSION_CODENAME; the lab is built on Debian")
    return f"{name.group(1)}-backports"


def mirror():
    """The mirror of this machine's own packages."""
    output = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian",
               "Component: main").split()
    if not output:
        raise Wrong("apt has no Debian mirror; run scripts/bootstrap.sh lab")
    return output[0]


def kernel(flavour):
    """The newest kernel of a flavour in the backports: package, release and version."""
    suite = backports()
    output = run("apt-cache", "show", f"linux-image-{flavour}/{suite}")
    for paragraph in output.split("\n\n"):
        version = re.search(r"^Version: (\S+)$", paragraph, re.M)
        found = re.search(r"^Depends: .*?(linux-image-(\S+?-" + flavour + r"))\b", paragraph, re.M)
        if version and found and "bpo" in version.group(1):
            return found.group(1), found.group(2), version.group(1)
    raise Wrong(f"apt has no linux-image-{flavour} in {suite}; run scripts/bootstrap.sh lab")


def download(folder, *packages):
    """Downloads packages (`name` or `name=version`) into the directory without installing them."""
    run("apt-get", "-q", "download", *packages, cwd=folder, timeout=1800,
        env={**os.environ, "APT_CONFIG": sandbox_free(folder)})
    return sorted(glob.glob(os.path.join(folder, "*.deb")))


def sandbox_free(folder):
    """An apt configuration for downloads as this user, who owns the directory."""
    path = os.path.join(folder, "apt.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write('APT::Sandbox::User "root";\n')
    return path


def unpack(package, folder):
    """Unpacks the files of a package."""
    run("dpkg", "-x", package, folder)


def lines(name):
    """The entries of one of the lab's lists, without comments."""
    with open(os.path.join(HERE, "files", name), encoding="utf-8") as file:
        return [word for line in file for word in line.split("#")[0].split()]


def root(folder):
    """A root file system for the nodes."""
    target = os.path.join(folder, "root")
    command = ["nice", "mmdebstrap", "--mode=root", "--variant=apt", "--architectures=amd64"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{kind}/*"
                for kind in ("doc", "man", "locale", "info")]
    command += ['--aptopt=APT::Sandbox::User "root"', f"--include={','.join(lines('packages'))}",
                NODE_SUITE, target, f"deb [signed-by={KEYRING}] {mirror()} {NODE_SUITE} main"]
    log = os.path.join(folder, "mmdebstrap.log")
    with open(log, "wb") as out:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out,
                              stderr=subprocess.STDOUT, timeout=1800, check=False)
    if done.returncode:
        with open(log, encoding="utf-8", errors="replace") as out:
            raise Wrong(f"mmdebstrap failed:\n{out.read()[-2500:]}")
    for left in ("var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(os.path.join(target, left), ignore_errors=True)
