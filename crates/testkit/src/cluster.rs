//! A separate PostgreSQL server for tests that configure, stop or kill one.
//!
//! It needs Debian's package (`KILONOVA_PG_BIN` names another folder of programs). The server ends
//! with the test, even if the test is killed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::skip;

/// A running server in a temporary folder; it trusts its superuser `postgres` on its socket.
pub struct Cluster {
    folder: TempDir,
    port: u16,
    server: Option<Child>,
}

impl Cluster {
    /// Starts a server with these lines in `postgresql.conf` and `pg_hba.conf`. Returns `None` and
    /// skips the test if PostgreSQL is not installed.
    ///
    /// # Panics
    /// Panics if the server does not start.
    pub fn start(conf: &str, hba: &str) -> Option<Self> {
        if !programs().join("initdb").exists() {
            skip(format!("the test needs PostgreSQL's programs in {}", programs().display()));
            return None;
        }
        // A socket's path has at most 107 bytes, so a long TMPDIR would be unusable.
        let folder = tempfile::Builder::new().prefix("kn-pg.").tempdir_in("/tmp");
        let folder = folder.expect("a temporary directory is created");
        give(folder.path());
        let data = folder.path().join("data");
        let made = command("initdb")
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status();
        assert!(made.expect("initdb runs").success(), "initdb fails");
        let mut this = Self { folder, port: 0, server: None };
        append(&data.join("postgresql.conf"), conf);
        let hba = format!("local all postgres trust\n{hba}\n");
        std::fs::write(data.join("pg_hba.conf"), hba).expect("pg_hba.conf is written");
        this.run();
        Some(this)
    }

    /// Starts the server on a free port, or restarts it on its previous port.
    ///
    /// # Panics
    /// Panics if the server does not start.
    pub fn run(&mut self) {
        // Another process may take a free port before the server does.
        for _ in 0..5 {
            let port = if self.port == 0 { free_port() } else { self.port };
            let mut server = command("postgres");
            server.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
            server.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-c", "fsync=off"]);
            let log = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(self.folder.path().join("log"));
            server.stderr(log.expect("the log opens")).stdout(Stdio::null());
            let mut server = server.spawn().expect("postgres starts");
            if self.answers(&mut server, port) {
                (self.port, self.server) = (port, Some(server));
                return;
            }
            let _ = server.kill();
            let _ = server.wait();
        }
        panic!("PostgreSQL does not start:\n{}", self.log());
    }

    fn answers(&self, server: &mut Child, port: u16) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            if server.try_wait().expect("the server is our child").is_some() {
                return false;
            }
            let asked = command("pg_isready")
                .args(["-q", "-p", &port.to_string(), "-h"])
                .arg(self.folder.path())
                .status();
            if asked.expect("pg_isready runs").success() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// Its folder, which also holds its socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database on its socket, as its superuser.
    pub fn url(&self, database: &str) -> String {
        let folder = self.folder.path().display();
        format!("postgresql:///{database}?user=postgres&host={folder}&port={}", self.port)
    }

    /// The server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Runs statements as its superuser.
    ///
    /// # Panics
    /// Panics if they fail.
    pub fn sql(&self, database: &str, sql: &str) {
        let ran = command("psql")
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-p"])
            .arg(self.port.to_string())
            .arg("-h")
            .arg(self.folder.path())
            .args(["-c", sql])
            .stdout(Stdio::null())
            .status();
        assert!(ran.expect("psql runs").success(), "{sql}");
    }

    /// Writes a file that only the server's user can read.
    ///
    /// # Panics
    /// Panics if it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("the file is written");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, private).expect("its mode is set");
        give(&path);
        path
    }

    /// Sends a signal to the server and all its processes: `STOP` and `CONT` for a server that
    /// hangs, `KILL` for a machine that fails.
    ///
    /// # Panics
    /// Panics if the server does not run.
    pub fn signal(&self, name: &str) {
        let main = self.server.as_ref().expect("the server runs").id();
        let mut all = children(main);
        // The main process first, so that it neither notices that the others end nor starts new
        // ones.
        all.insert(0, main);
        for process in all {
            let _ = Command::new("kill").args([format!("-{name}"), process.to_string()]).status();
        }
    }

    /// Kills the server as if its machine failed.
    ///
    /// # Panics
    /// Panics if the server does not run.
    pub fn kill(&mut self) {
        self.signal("KILL");
        let mut server = self.server.take().expect("the server runs");
        server.wait().expect("the server ends");
        let _ = std::fs::remove_file(self.data().join("postmaster.pid"));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.kill();
        }
    }
}

fn programs() -> PathBuf {
    std::env::var_os("KILONOVA_PG_BIN")
        .map_or_else(|| PathBuf::from("/usr/lib/postgresql/15/bin"), PathBuf::from)
}

/// True for root: PostgreSQL refuses to run as root, and Debian's package creates a user for it.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A program of PostgreSQL, as its user. It ends when this thread does.
fn command(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if is_root() {
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
    }
    command.arg("--").arg(programs().join(program)).current_dir("/").stdin(Stdio::null());
    command
}

/// Makes the server's user the owner of a path.
fn give(path: &Path) {
    if is_root() {
        let given = Command::new("chown").arg("postgres:postgres").arg(path).status();
        assert!(given.expect("chown runs").success(), "chown {}", path.display());
    }
}

fn append(file: &Path, text: &str) {
    let mut file = std::fs::OpenOptions::new().append(true).open(file).expect("the file exists");
    writeln!(file, "{text}").expect("the file is written");
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("the listener has an address").port()
}

fn children(process: u32) -> Vec<u32> {
    let file = format!("/proc/{process}/task/{process}/children");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace().filter_map(|one| one.parse().ok()).collect()
}
