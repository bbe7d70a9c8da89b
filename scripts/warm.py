"""Runs commands of a Python program, each in its own process that already has the program's modules loaded.

Loading its modules is nine tenths of the cost of a stock client's command. `Warm` starts the program's own
interpreter once, lets it load them, and has it fork for each command; the child runs the program's script
from its first line, with the caller's arguments, environment and outputs. The program is unchanged, and
nothing is kept between commands. Without `Warm` (`KILONOVA_CLIENTS=anew`, see cli.py) the commands behave
the same, only slower.
"""

import gc
import json
import os
import re
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from importlib.metadata import distributions

# More than any command line and environment used here.
REQUEST = 1 << 18
# The clients' plugins are found by entry points in groups with these prefixes.
PLUGINS = "openstack."


def interpreter(program):
    """The Python interpreter that a script's first line names, or None."""
    with open(program, "rb") as file:
        first = file.readline(1024).decode("utf-8", "replace").split()
    name = first[0][2:] if first and first[0].startswith("#!") else ""
    return name if len(first) == 1 and os.path.basename(name).startswith("python") else None


class Warm:
    """A program with its modules loaded; it ends with the process that created it."""

    def __init__(self, program, env):
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [interpreter(program), os.path.abspath(__file__), program, str(theirs.fileno())], env=env,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    def run(self, arguments, env, timeout):
        """Runs a command. Returns its exit code, output, and errors. Threads may call it concurrently."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            ours, theirs = socket.socketpair()
            with ours:
                with theirs:
                    socket.send_fds(self.line, [json.dumps([arguments, env]).encode()],
                                    [out.fileno(), err.fileno(), theirs.fileno()])
                ours.settimeout(timeout)
                try:
                    said = ours.recv(64)
                except TimeoutError:
                    raise subprocess.TimeoutExpired(arguments, timeout) from None
            if not said:
                raise ChildProcessError(f"the process that forks for {arguments} has ended")
            return int(said), *(self._read(file) for file in (out, err))

    @staticmethod
    def _read(file):
        file.seek(0)
        return file.read().decode("utf-8", "replace")


def read_modules(program):
    """Imports what a command would; ignores failures, which the command itself reports."""
    with open(program, encoding="utf-8") as file:
        wanted = set(re.findall(r"^(?:from|import) ([\w.]+)", file.read(), re.M))
    for found in distributions():
        wanted.update(point.module for point in found.entry_points if point.group.startswith(PLUGINS))
    for name in sorted(wanted):
        try:
            __import__(name)
        except Exception:  # pylint: disable=broad-except
            continue


class Forks:
    """The loop that forks. In the child, `forever` returns the command's arguments."""

    def __init__(self, line):
        self.line = line
        self.callers = {}
        self.selector = selectors.DefaultSelector()
        self.ended, self.wake = os.pipe()
        for end in (self.ended, self.wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # When the caller is interrupted, this process ends with it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        self.selector.register(line, selectors.EVENT_READ)
        self.selector.register(self.ended, selectors.EVENT_READ)

    def forever(self):
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.ended:
                    self.reap()
                elif key.fileobj is self.line:
                    request, ends, _, _ = socket.recv_fds(self.line, REQUEST, 3)
                    if not request:
                        self.leave()
                    arguments = self.fork(json.loads(request), ends)
                    if arguments is not None:
                        return arguments
                elif key.data in self.callers:
                    # The caller has given up.
                    self.selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)

    def fork(self, request, ends):
        """Forks; the child takes over outputs and environment and returns its arguments."""
        arguments, env = request
        pid = os.fork()
        if pid:
            for end in ends[:2]:
                os.close(end)
            self.callers[pid] = socket.socket(fileno=ends[2])
            self.selector.register(self.callers[pid], selectors.EVENT_READ, pid)
            return None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, end in enumerate(ends[:2], 1):
            os.dup2(end, number)
        for kept in (self.line, self.selector, *self.callers.values()):
            kept.close()
        for end in (*ends, self.ended, self.wake):
            os.close(end)
        os.environ.clear()
        os.environ.update(env)
        return arguments

    def reap(self):
        """Reports to callers which commands have ended."""
        os.read(self.ended, 4096)
        while self.callers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self.callers.pop(pid) as caller:
                if caller in self.selector.get_map():
                    self.selector.unregister(caller)
                try:
                    caller.sendall(str(os.waitstatus_to_exitcode(status)).encode())
                except OSError:
                    pass

    def leave(self):
        """Ends everything, because the caller has ended."""
        for pid in self.callers:
            os.kill(pid, signal.SIGKILL)
        sys.exit(0)


def main():
    """The forking side: PROGRAM and the socket's descriptor number."""
    program, number = sys.argv[1], int(sys.argv[2])
    line = socket.socket(fileno=number)
    # As if the program had been started directly: with its name, which modules read, and without this script's folder.
    sys.argv = [program]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    read_modules(program)
    gc.collect()
    gc.freeze()
    sys.argv += Forks(line).forever()
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
