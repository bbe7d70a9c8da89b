"""The lab's cache: one folder per build product, named by a digest of its inputs.

A product is built in a folder that ends in `.part` and renamed when it is complete, so that an
interrupted build leaves nothing that looks finished. A new version replaces the older ones. The
cache lies outside the repository, at KILONOVA_LAB_CACHE, and is shared by all checkouts.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time

from stack import Wrong

CACHE = os.path.abspath(os.environ.get("KILONOVA_LAB_CACHE") or os.path.expanduser(
    os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "kilonova-lab")))


def digest(*parts):
    """A short digest of texts and bytes."""
    whole = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        whole.update(f"{len(data)}:".encode() + data)
    return whole.hexdigest()[:16]


def text(path):
    """A file's content, for a digest."""
    with open(path, "rb") as file:
        return file.read()


class Locked:
    """One build at a time: a second one waits and then finds everything built."""

    def __enter__(self):
        os.makedirs(CACHE, mode=0o755, exist_ok=True)
        self.file = open(os.path.join(CACHE, "lock"), "w", encoding="utf-8")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        self.file.close()


def thing(name, parts, make, say=print):
    """The directory of a build product; `make(folder)` fills it if it does not exist yet."""
    folder = os.path.join(CACHE, f"{name}-{digest(*parts)}")
    if os.path.isdir(folder):
        return folder
    say(f"lab: building {name} ({folder})")
    part, begun = f"{folder}.part", time.monotonic()
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    make(part)
    os.rename(part, folder)
    for other in os.listdir(CACHE):
        old = os.path.join(CACHE, other)
        if other.rpartition("-")[0] == name and old != folder:
            shutil.rmtree(old, ignore_errors=True)
    say(f"lab: {name} is built, {time.monotonic() - begun:.0f} s")
    return folder


def run(*command, timeout=900, log=None, **more):
    """Runs a program to its end; the error contains its output if it fails."""
    with open(log or os.devnull, "ab") as kept:
        try:
            done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=timeout, check=False, **more)
        except subprocess.TimeoutExpired as error:
            kept.write(error.output or b"")
            raise Wrong(f"{command[0]} did not end within {timeout} s") from None
        kept.write(done.stdout)
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        raise Wrong(f"{' '.join(map(str, command))[:300]}: exit code {done.returncode}:\n{output[-2500:]}")
    return output
