"""The stock `openstack` in one interpreter: its modules are imported once, each command runs in a fork.

Starting `openstack` costs about 1.5 CPU-seconds, all but 0.2 of them for imports. Every fork creates its
own session from `clouds.yaml`, so it sends what a separate process would send. Two things differ:
`time.sleep` is shortened (the client polls every five seconds for a server), and every HTTP request is
recorded with its answer.

Runs in the Python that has the clients (.venv).
"""

import importlib.metadata
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import warnings

GROUPS = ("openstack.cli.base", "openstack.common", "openstack.compute.v2", "openstack.image.v2")
ALSO = {"openstack.identity.v3": ("project_list", "service_list", "user_list"),
        "openstack.network.v2": ("network_list", "network_create", "network_delete", "subnet_create", "subnet_delete",
                                 "port_create", "port_delete", "port_list", "security_group_create",
                                 "security_group_delete")}
# The longest sleep of a command between two polls, in seconds.
NAP = 0.1
ANSWER = 200000
# A command is killed after this many seconds.
LIMIT = 60


class Done:
    """A command's output, exit code, and requests."""

    def __init__(self, line, code, out, err, requests):
        self.line, self.code, self.out, self.err, self.requests = line, code, out, err, requests

    @property
    def said(self):
        """All its output, on one line."""
        return " ".join((self.out + " " + self.err).split())

    def value(self):
        """The JSON it printed, or None."""
        for at in range(len(self.out)):
            if self.out[at] in "{[" and (at == 0 or self.out[at - 1] in "\n\r"):
                try:
                    return json.JSONDecoder().raw_decode(self.out[at:])[0]
                except ValueError:
                    continue
        return None


class Stock:
    """The commands of python-openstackclient, for one cloud."""

    def __init__(self, program, clouds):
        warnings.simplefilter("ignore")
        self.program = program
        for name in list(os.environ):
            if name.startswith("OS_") or name.lower().endswith("_proxy"):
                del os.environ[name]
        os.environ.update({"OS_CLIENT_CONFIG_FILE": clouds, "OS_CLOUD": "kilonova",
                           "PYTHONWARNINGS": "ignore", "LC_ALL": "C.UTF-8", "COLUMNS": "160"})
        self.log = []
        self._imports()
        self._watch()

    def _imports(self):
        import openstackclient.shell
        import openstack.connection  # noqa: F401 - here, so that no fork does it
        import openstackclient.compute.client  # noqa: F401
        import openstackclient.identity.client  # noqa: F401
        import openstackclient.image.client  # noqa: F401
        import openstackclient.network.client  # noqa: F401
        self.main = openstackclient.shell.main
        self.classes = {}
        for entry in importlib.metadata.distribution("python-openstackclient").entry_points:
            if entry.group in GROUPS or entry.name in ALSO.get(entry.group, ()):
                kind = entry.load()
                self.classes[entry.name.replace("_", " ")] = (entry.group, kind)

    def _watch(self):
        import requests.adapters
        send = requests.adapters.HTTPAdapter.send
        log = self.log

        def watched(adapter, request, **options):
            answer = send(adapter, request, **options)
            body = request.body
            if isinstance(body, bytes):
                body = body.decode("utf-8", "replace")
            elif body is not None and not isinstance(body, str):
                body = "<stream>"
            said = answer.text[:ANSWER] if "json" in answer.headers.get("Content-Type", "") else ""
            log.append({"method": request.method, "url": request.url, "body": body,
                        "headers": dict(request.headers), "status": answer.status_code,
                        "response": said})
            return answer

        requests.adapters.HTTPAdapter.send = watched

    def command(self, words):
        """The longest command that these words begin with; returns its group and class."""
        words = [word for word in words]
        while words and words[0].startswith("--os-"):
            del words[:2]
        for length in range(min(4, len(words)), 0, -1):
            name = " ".join(words[:length])
            if name in self.classes:
                return name, *self.classes[name]
        return None, None, None

    def known(self, group):
        """All commands of a group."""
        return sorted(name for name, (of, _) in self.classes.items() if of == group)

    def _words(self, line):
        from cliff.display import DisplayCommandBase
        words = shlex.split(line)
        _, _, kind = self.command(words)
        if kind is not None and issubclass(kind, DisplayCommandBase) and "-f" not in words:
            words += ["-f", "json"]
        return words

    def run(self, line, apart=False, env=None):
        """Runs a command, in a fork or as a separate process."""
        words = self._words(line)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, \
                tempfile.TemporaryFile("w+") as log:
            if apart:
                code = subprocess.run([self.program, *words], stdin=subprocess.DEVNULL, stdout=out,
                                      stderr=err, timeout=120, check=False,
                                      env={**os.environ, **(env or {})}).returncode
            else:
                sys.stdout.flush()
                child = os.fork()
                if child == 0:
                    self._child(words, out, err, log, env or {})
                code = self._end(child)
            texts = []
            for file in (out, err, log):
                file.seek(0)
                texts.append(file.read())
        return Done(line, code, texts[0], texts[1], json.loads(texts[2] or "[]"))

    def _end(self, child):
        """Waits for a fork, two minutes at most."""
        deadline = time.monotonic() + LIMIT
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return 124
            time.sleep(0.005)

    def _child(self, words, out, err, log, env):
        code = 1
        try:
            os.environ.update(env)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sleep = time.sleep
            time.sleep = lambda seconds: sleep(min(seconds, NAP))
            sys.argv = ["openstack", *words]
            try:
                code = self.main(words) or 0
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            json.dump(self.log, log)
            log.flush()
            os._exit(code)
