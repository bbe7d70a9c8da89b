"""Runs commands, checks their output and effects, and compares their requests with the recordings.

A failed check is recorded and printed, and the step continues; a failure that a step cannot survive raises.
"""

import time

from compute import scope, wire
from stack import Wrong

ABSENT = object()


class Story:
    """One run of all steps."""

    def __init__(self, stock, api, recordings, verbose=False):
        self.stock, self.api, self.recordings, self.verbose = stock, api, recordings, verbose
        self.commands, self.checks, self.compared, self.apart = 0, 0, 0, 0
        self.failures, self.expected, self.used, self.keys = [], set(), set(), set()

    def say(self, text):
        print(text, flush=True)

    def check(self, text, holds, why=""):
        """Checks a condition."""
        self.checks += 1
        if holds:
            if self.verbose:
                self.say(f"    ✓ {text}")
        else:
            self.fail(f"{text}: {why}" if why else text)
        return holds

    def same(self, text, found, wanted):
        """Checks a value, against another one or with a function."""
        good = wanted(found) if callable(wanted) else found == wanted
        return self.check(text, good, f"it is {found!r}" + ("" if callable(wanted) else f", not {wanted!r}"))

    def fail(self, text):
        self.failures.append(text)
        self.say(f"    ✗ {text[:1500]}")

    def run(self, line, fields=None, rows=None, count=None, columns=None, says=None, fails=False,
            reaches=None, apart=False, sent=None, env=None, may=None):
        """Runs a command and checks its output. Returns the JSON it printed.

        fields: of a resource's table. rows: each must be in the list once. columns: of the list.
        says: must be in the output. fails: the expected message of a refusal, or True. may: the message of a
        refusal that may occur. reaches: (server, status) to wait for. sent: (method, end of a path, keys of
        the body) of one request.
        """
        begun = time.monotonic()
        done = self.stock.run(line, apart, env)
        self.commands += 1
        self.apart += apart
        name, _, _ = self.stock.command(wire.line_key(line).split(" "))
        self.used.add(name)
        self.say(f"  $ openstack {line}    # {time.monotonic() - begun:.1f} s"
                 + (", a process of its own" if apart else ""))
        if self.verbose:
            self.say("\n".join(f"      {text}" for text in (done.out + done.err).splitlines()))
        told = f"openstack {line}"
        if may and done.code != 0:
            fails = may
            self._excuse(line)
        ended = self.check(f"{told}: exit code {done.code}", (done.code != 0) == bool(fails), done.said[-700:])
        if isinstance(fails, str):
            self.check(f"{told}: says `{fails}`", fails in done.said, done.said[-700:])
        if says is not None:
            self.check(f"{told}: says `{says}`", says in done.said, done.said[-700:])
        value = done.value()
        if ended:
            self._printed(told, value, fields, rows, count, columns)
        if sent:
            self._sent(told, done, *sent)
        if not apart:
            self._compare(line, done, bool(fails), value)
        if reaches and ended:
            self.reaches(*reaches)
        return value

    def _printed(self, told, value, fields, rows, count, columns):
        for name, wanted in (fields or {}).items():
            found = value.get(name, ABSENT) if isinstance(value, dict) else ABSENT
            self.same(f"{told}: `{name}`", found, wanted)
        if rows is None and count is None and columns is None:
            return
        if not self.check(f"{told}: prints a list", isinstance(value, list), repr(value)[:200]):
            return
        for wanted in rows or []:
            found = [row for row in value if all(
                (want(row.get(name)) if callable(want) else row.get(name) == want)
                for name, want in wanted.items())]
            shown = {name: want for name, want in wanted.items() if not callable(want)}
            self.check(f"{told}: one row with {shown}", len(found) == 1, f"{value}"[:900])
        if count is not None:
            self.same(f"{told}: rows", len(value), count)
        if columns is not None and value:
            self.same(f"{told}: columns", list(value[0]), columns)

    def _sent(self, told, done, method, ending, keys=None):
        found = [one for one in wire.compared(done.requests)
                 if one.method == method and one.path.endswith(ending)]
        if self.check(f"{told}: sends {method} …{ending}", found,
                      "; ".join(wire.shown(one) for one in wire.compared(done.requests))) and keys is not None:
            self.same(f"{told}: the keys of what it sends", sorted(found[0].body), sorted(keys))

    def _excuse(self, line):
        """Skips the comparison for a command that lost a race, because it sends less than its recording."""
        key = wire.line_key(line)
        self.keys.add(key)
        self.expected.update(number for number, (command, *_) in enumerate(scope.DIFFERENCES) if command == key)

    def _differ(self, line, what):
        """Fails for a difference from a recording that is not listed with a reason."""
        key = wire.line_key(line)
        for number, (command, part, _) in enumerate(scope.DIFFERENCES):
            if (command is None or key == command) and part in what:
                self.expected.add(number)
                return
        self.fail(f"openstack {line}: differs: {what}")

    def _compare(self, line, done, refused, value):
        """Compares with the recording, unless only this run expects a refusal."""
        key = wire.line_key(line)
        recording = next((one for one in self.recordings if key in one.commands), None)
        if recording is None:
            return
        _, code, theirs, printed = recording.commands[key]
        if refused != (code != 0) and key not in scope.ENDINGS:
            return
        ours = wire.compared(done.requests)
        self.keys.add(key)
        self.compared += 1
        self.checks += 1
        for what in wire.printed_differ(printed, value):
            self._differ(line, f"prints: {what}")
        depth = 6 if recording.real else 5
        if [one[:depth] for one in theirs] != [one[:depth] for one in ours]:
            for one in theirs:
                if one[:depth] not in [other[:depth] for other in ours]:
                    self._differ(line, f"with {recording.name}: {wire.shown(one)}")
            for one in ours:
                if one[:depth] not in [other[:depth] for other in theirs]:
                    self._differ(line, f"only here: {wire.shown(one)}")
            if {repr(one[:depth]) for one in theirs} == {repr(one[:depth]) for one in ours}:
                self._differ(line, f"another order or number of requests: {[wire.shown(one) for one in ours]}")
            return
        for one, other in zip(theirs, ours):
            if recording.real and one.response and other.response:
                try:
                    values = wire.json.loads(one.response), wire.json.loads(other.response)
                except ValueError:
                    continue
                for what in wire.shapes_differ(*values):
                    self._differ(line, f"answer of {one.method} {one.path}: {what}")

    def server(self, name):
        """A server by its name or id, in the newest microversion."""
        version = {"OpenStack-API-Version": "compute 2.100"}
        path = f"/compute/v2.1/servers/detail?all_tenants=True&name=^{name}$"
        found = self.api.expect(200, "GET", path, headers=version)["servers"]
        if not found and len(name) == 36:
            status, _, answer = self.api.ask("GET", f"/compute/v2.1/servers/{name}", headers=version)
            return answer["server"] if status == 200 else None
        return found[0] if found else None

    def reaches(self, name, wanted, timeout=60):
        """Waits until a server has a status and nothing is in progress; `GONE`: until it is deleted."""
        deadline = time.monotonic() + timeout
        while True:
            server = self.server(name)
            status = server["status"] if server else "GONE"
            if status == wanted and not (server or {}).get("OS-EXT-STS:task_state"):
                self.checks += 1
                return server
            if time.monotonic() > deadline or (status == "ERROR" and wanted != "GONE"):
                fault = (server or {}).get("fault")
                raise Wrong(f"server {name} is {status}, not {wanted}: {fault}")
            time.sleep(0.03)

    def until(self, what, holds, timeout=30):
        """Waits until a condition holds."""
        deadline = time.monotonic() + timeout
        while not (found := holds()):
            if time.monotonic() > deadline:
                raise Wrong(f"not true after {timeout} s: {what}")
            time.sleep(0.05)
        self.checks += 1
        return found

    def host(self, name):
        """A server's host."""
        return self.server(name)["OS-EXT-SRV-ATTR:host"]

    def held(self, consumer):
        """A consumer's allocations: class to amount, over all providers."""
        found = {}
        answer = self.api.expect(200, "GET", f"/placement/allocations/{consumer}")
        for provider in answer["allocations"].values():
            for name, amount in provider["resources"].items():
                found[name] = found.get(name, 0) + amount
        return found

    def missing(self):
        """Fails for commands that neither ran nor are out of scope, and for entries that no longer apply."""
        groups = [name for name in self.stock.known("openstack.compute.v2")
                  if name not in self.used and name not in scope.COMMANDS]
        for name in groups:
            self.fail(f"the command `{name}` was not run")
        for name in sorted(set(scope.COMMANDS) & self.used):
            self.fail(f"the command `{name}` was run, but is listed as out of scope")
        for recording in self.recordings:
            for key, (line, *_) in recording.commands.items():
                name, group, _ = self.stock.command(key.split(" "))
                if group not in ("openstack.compute.v2", "openstack.common") or key in self.keys \
                        or name in scope.COMMANDS or key in scope.LINES:
                    continue
                self.fail(f"recorded before {recording.name}, but not run: {line}")
        if self.recordings:
            for number, (command, part, reason) in enumerate(scope.DIFFERENCES):
                if number not in self.expected:
                    self.fail(f"a difference that is listed was not seen: {command}: {part}")
