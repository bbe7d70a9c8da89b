"""Runs the stock OpenStack clients of .venv as child processes, and parses their tables.

Prints each command with its table; callers do the checks. A `Lane` is one thread of the story: its
output can be held back, so that two lanes may run at the same time and still be read one after the
other.
"""

import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from stack import Wrong
from warm import Warm, interpreter


# Longer lines are cut when printed; checks see them whole.
WIDTH = 230


class Table:
    """A printed table: rows by column, or the fields of one resource."""

    def __init__(self, text):
        lines = [line for line in text.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines]
        self.columns = cells[0] if cells else []
        self.rows = [dict(zip(self.columns, row)) for row in cells[1:]]
        self.fields = {}
        if self.columns[:2] in (["Field", "Value"], ["field", "value"]):
            last = None
            for row in cells[1:]:
                last = row[0] or last
                value = " | ".join(row[1:])
                self.fields[last] = f"{self.fields[last]}\n{value}" if not row[0] else value

    def __getitem__(self, field):
        if field not in self.fields:
            raise Wrong(f"the table has no field `{field}`; it has {', '.join(self.fields)}")
        return self.fields[field]

    def column(self, name):
        """All values of a column."""
        if self.rows and name not in self.columns:
            raise Wrong(f"the table has no column `{name}`; it has {', '.join(self.columns)}")
        return [row[name] for row in self.rows]

    def where(self, **wanted):
        """The rows whose columns have these values; `_` in a name stands for a space too."""
        def has(row, name, value):
            return value in (row.get(name), row.get(name.replace("_", " ")))
        return [row for row in self.rows if all(has(row, *pair) for pair in wanted.items())]

    def one(self, **wanted):
        """The only such row; fails unless there is exactly one."""
        rows = self.where(**wanted)
        if len(rows) != 1:
            raise Wrong(f"expected one row with {wanted}, found {len(rows)}")
        return rows[0]


class Clients:
    """The clients' programs and the cloud they use."""

    def __init__(self, program, clouds, brief=False):
        self.program = program
        self.brief = brief
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith("OS_") and not name.lower().endswith("_proxy")}
        self.env = {**kept, "OS_CLIENT_CONFIG_FILE": clouds, "OS_CLOUD": "kilonova",
                    "PYTHONWARNINGS": "ignore", "LC_ALL": "C.UTF-8", "COLUMNS": "160"}
        self.commands = 0
        self.checks = 0
        self.lock = threading.Lock()
        self.warm = {}

    def call(self, arguments, timeout=180):
        """Runs a command. Returns its exit code, output, and errors."""
        with self.lock:
            self.commands += 1
            if self.program not in self.warm:
                self.warm[self.program] = Warm(self.program, self.env) if warmed(self.program) else None
            warm = self.warm[self.program]
        if warm:
            return warm.run(arguments, self.env, timeout)
        done = subprocess.run([self.program, *arguments], env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout, check=False)
        return done.returncode, done.stdout, done.stderr


def warmed(program):
    """Returns whether a program is forked from a process with its modules loaded; not with `KILONOVA_CLIENTS=anew`."""
    return os.environ.get("KILONOVA_CLIENTS") != "anew" and interpreter(program) is not None


class Answer:
    """A command's output and exit code."""

    def __init__(self, arguments, code, out, err):
        self.arguments, self.code, self.out, self.err = arguments, code, out, err
        self.table = Table(out)


class Lane:
    """One thread of the story."""

    def __init__(self, clients, live=True):
        self.clients = clients
        self.live = live
        self.held = []

    def say(self, text=""):
        if self.live:
            print(text, flush=True)
        else:
            self.held.append(text)

    def release(self):
        """Prints the output that was held back; from now on prints immediately."""
        for text in self.held:
            print(text, flush=True)
        self.held, self.live = [], True

    def tick(self, text, holds=True, why=""):
        """Prints a tick if a check passes; otherwise fails."""
        with self.clients.lock:
            self.clients.checks += 1
        if not holds:
            raise Wrong(f"{text}: check failed{': ' + why if why else ''}")
        self.say(f"  ✓ {text}")

    def _run(self, arguments):
        try:
            return Answer(arguments, *self.clients.call(arguments))
        except subprocess.TimeoutExpired:
            raise Wrong(f"did not end within 180 s: openstack {show(arguments)}") from None

    def _print(self, answer):
        self.say(f"$ openstack {show(answer.arguments)}")
        if not self.clients.brief:
            for line in (answer.out + answer.err).splitlines():
                if line.strip():
                    self.say(line if len(line) <= WIDTH else line[:WIDTH - 1] + "…")

    def run(self, *arguments, fails=False):
        """Runs a command, prints it and its table. Returns its answer."""
        return self.together([arguments], fails)[0]

    def together(self, commands, fails=False):
        """Runs independent commands in parallel and prints them in order."""
        with ThreadPoolExecutor(max_workers=4) as pool:
            answers = list(pool.map(self._run, commands))
        for answer in answers:
            self._print(answer)
            if (answer.code != 0) != fails:
                how = "succeeded unexpectedly" if fails else f"exit code {answer.code}"
                # With brief output, the reason has not been printed yet.
                said = f"\n{answer.out}{answer.err}".rstrip() if self.clients.brief else ""
                raise Wrong(f"openstack {show(answer.arguments)}: {how}{said}")
        return answers

    def until(self, arguments, holds, what, timeout=60):
        """Repeats a read command until its output is as expected; prints the last one."""
        deadline = time.monotonic() + timeout
        while True:
            answer = self._run(arguments)
            if answer.code == 0 and holds(answer):
                self._print(answer)
                return answer
            if time.monotonic() > deadline:
                self._print(answer)
                raise Wrong(f"after {timeout} s: {what}: check failed")


def show(arguments):
    """A command as typed in a shell."""
    def quoted(word):
        plain = all(c.isalnum() or c in "-_=:./,@%+" for c in word) and word
        return word if plain else "'" + word.replace("'", "'\\''") + "'"
    return " ".join(quoted(word) for word in arguments)
