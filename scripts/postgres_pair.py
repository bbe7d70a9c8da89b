"""A PostgreSQL primary and its streaming standby in a temporary folder, for `failover.py`.

Both run as the user of Debian's package if the script runs as root, log in by SCRAM, and end with the script.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

from stack import Wrong, free_port

PROGRAMS = os.environ.get("KILONOVA_PG_BIN", "/usr/lib/postgresql/15/bin")
PASSWORD = "failover-word"


def command(program, *arguments):
    """A command line that runs as PostgreSQL's user, and ends when this script does."""
    line = ["setpriv", "--pdeathsig", "KILL"]
    if os.getuid() == 0:
        line += ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    return [*line, "--", os.path.join(PROGRAMS, program), *arguments]


def run(program, *arguments):
    done = subprocess.run(command(program, *arguments), cwd="/", stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False,
                          env={**os.environ, "PGPASSWORD": PASSWORD})
    if done.returncode != 0:
        raise Wrong(f"{program} ended with exit code {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout.strip()


class Server:
    """One PostgreSQL server."""

    def __init__(self, folder, name):
        self.folder, self.name, self.port = folder, name, free_port()
        self.data = os.path.join(folder, name)
        self.process = None

    def configure(self, *lines):
        """Adds lines to its configuration; the last value of a name counts."""
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="utf-8") as file:
            file.write("\n".join(["", *lines, ""]))

    def start(self):
        with open(os.path.join(self.folder, f"{self.name}.log"), "ab") as log:
            self.process = subprocess.Popen(command(
                "postgres", "-D", self.data, "-p", str(self.port), "-h", "127.0.0.1", "-k", self.folder),
                cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 60
        ready = command("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port))
        while subprocess.run(ready, cwd="/", check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Wrong(f"PostgreSQL ({self.name}) does not start; see {self.folder}/{self.name}.log")
            time.sleep(0.05)

    def sql(self, text, database="postgres"):
        return run("psql", "-XAtq", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database,
                   "-c", text)

    def processes(self):
        """Its processes, the main one first: it must not notice that the others end."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            return [self.process.pid, *map(int, file.read().split())]

    def signal(self, number):
        for process in self.processes():
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def kill(self):
        """Kills it, like a failure of its machine."""
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()

    def disconnect(self):
        """Stops the reception of the primary's log, and waits until it has stopped."""
        self.sql("ALTER SYSTEM SET primary_conninfo = ''")
        self.sql("SELECT pg_reload_conf()")
        deadline = time.monotonic() + 30
        while self.sql("SELECT 1 FROM pg_stat_wal_receiver"):
            if time.monotonic() > deadline:
                raise Wrong(f"{self.name} still receives the primary's log")
            time.sleep(0.05)


class Pair:
    """A primary and a standby."""

    def __init__(self, synchronous):
        if not os.path.exists(os.path.join(PROGRAMS, "pg_basebackup")):
            raise Wrong(f"{PROGRAMS} has no PostgreSQL; install postgresql-15")
        # A socket's path holds 107 bytes at most.
        self.folder = tempfile.mkdtemp(prefix="kilonova-pair.", dir="/tmp")
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        os.chmod(self.folder, 0o755)
        self.primary, self.standby = Server(self.folder, "primary"), Server(self.folder, "standby")
        self.synchronous = synchronous

    def start(self):
        words = os.path.join(self.folder, "words")
        with open(words, "w", encoding="ascii") as file:
            file.write(PASSWORD)
        os.chmod(words, 0o644)
        first, second = self.primary, self.standby
        run("initdb", "-D", first.data, "-U", "postgres", "-A", "scram-sha-256", "--pwfile", words, "-E", "UTF8",
            "--locale=C", "--no-sync")
        # Only processes are killed, not the machine, so the log survives in the page cache.
        first.configure("fsync = off", "full_page_writes = off", "max_connections = 100", "wal_keep_size = 512MB",
                        "synchronous_commit = on")
        first.start()
        source = (f"host=127.0.0.1 port={first.port} user=postgres password={PASSWORD} "
                  f"application_name=standby")
        run("pg_basebackup", "-D", second.data, "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        second.start()
        if self.synchronous:
            # The standby keeps an empty list: once promoted, it must not wait for itself.
            first.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            first.sql("SELECT pg_reload_conf()")
        wanted = "sync" if self.synchronous else "async"
        deadline = time.monotonic() + 30
        while first.sql("SELECT sync_state FROM pg_stat_replication") != wanted:
            if time.monotonic() > deadline:
                raise Wrong(f"the standby is not {wanted}")
            time.sleep(0.05)
        first.sql("CREATE DATABASE kilonova")

    def url(self):
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (self.primary, self.standby))
        return f"postgresql://postgres@{hosts}/kilonova"

    def promote(self):
        run("pg_ctl", "promote", "-D", self.standby.data, "-w", "-t", "30")

    def stop(self):
        for server in (self.primary, self.standby):
            server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
