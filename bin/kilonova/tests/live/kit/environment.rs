//! A temporary directory and a database, in which a test starts the program any number of times.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use super::Serve;

/// Where a test starts the program.
pub struct Environment {
    directory: TempDir,
    /// The database's URL; none for SQLite in the state directory.
    pub database: Option<String>,
    /// The text of the configuration file, if there is one.
    pub config: Option<String>,
    /// True if the demo's simulated hosts run in it.
    pub nodes: bool,
}

impl Environment {
    /// On SQLite.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("the temporary directory is created");
        Self { directory, database: None, config: None, nodes: false }
    }

    /// One on SQLite and, if the environment names a server, one on PostgreSQL.
    pub fn all() -> Vec<Self> {
        let mut places = vec![Self::new()];
        if let Ok(server) = std::env::var("KILONOVA_TEST_POSTGRES") {
            places.push(Self { database: Some(fresh_database(&server)), ..Self::new() });
        }
        places
    }

    /// With a configuration file.
    pub fn configured(text: &str) -> Self {
        Self { config: Some(text.to_owned()), ..Self::new() }
    }

    /// With another configuration file from now on.
    pub fn reconfigured(mut self, text: &str) -> Self {
        self.config = Some(text.to_owned());
        self
    }

    /// Adds the demo's simulated hosts.
    pub fn with_hosts(mut self) -> Self {
        self.nodes = true;
        self
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Runs a command for this controller, such as `keys list`, until it ends.
    pub fn tool(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
        command.args(words).arg("--state-dir").arg(self.state()).stdin(Stdio::null());
        if let Some(database) = &self.database {
            command.args(["--database", database]);
        }
        if let Some(text) = &self.config {
            command.arg("--config").arg(self.write("kilonova.conf", text));
        }
        command.env_remove("RUST_LOG").output().expect("the program runs")
    }

    /// Copies the sealing key of another controller of the same cloud, which is all that a further
    /// controller needs.
    pub fn share_seal(&self, other: &Self) {
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
        let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(self.state());
        made.expect("the state directory is created");
        let to = self.state().join("seal.key");
        std::fs::copy(other.state().join("seal.key"), &to).expect("the file is copied");
        std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o600))
            .expect("the mode is set");
    }

    /// Runs a statement on the database, while no controller runs.
    pub fn sql(&self, statement: &'static str) {
        use kilonova_store::{DatabaseUrl, Options, Store, params};
        let file = || DatabaseUrl::Sqlite(self.state().join("kilonova.db"));
        let url = self.database.as_ref().map_or_else(file, |url| url.parse().expect("a URL"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("the runtime starts").block_on(async {
            let store = Store::open_with(&url, &Options::for_command()).await;
            let store = store.expect("the database opens");
            let done = store.write(move |tx| tx.execute(statement, params![])).await;
            done.expect("the statement runs");
        });
    }

    /// A file beside the state directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file beside the state directory.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, bytes).expect("the file is written");
        path
    }

    /// The program with a subcommand and the options for this place; its input is empty.
    pub fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
        command.arg(subcommand).arg("--state-dir").arg(self.state()).stdin(Stdio::null());
        command.env_remove("RUST_LOG");
        if let Some(database) = &self.database {
            command.args(["--database", database]);
        }
        if let Some(text) = &self.config {
            command.arg("--config").arg(self.write("kilonova.conf", text));
        }
        if subcommand == "serve" && self.nodes {
            command.arg("--nodes").arg(repository().join("examples/nodes/demo.toml"));
        }
        command
    }

    /// Starts `serve` on a free port.
    pub fn start(&self) -> Serve {
        self.start_with(|_| {})
    }

    /// Starts `serve` on a free port with more options.
    pub fn start_with(&self, change: impl FnOnce(&mut Command)) -> Serve {
        let mut command = self.command("serve");
        command.args(["--listen", "127.0.0.1:0"]);
        change(&mut command);
        Serve::start(command, self.file("log"))
    }

    /// Starts `serve` on a free port with another standard error than the file of the log.
    pub fn start_with_log(&self, log: Stdio) -> Serve {
        let mut command = self.command("serve");
        command.args(["--listen", "127.0.0.1:0"]).stderr(log);
        Serve::start_logging(command, self.file("log"))
    }

    /// Runs a command until it ends.
    pub fn run(&self, subcommand: &str, options: &[&str]) -> Output {
        self.command(subcommand).args(options).output().expect("the program runs")
    }
}

/// The repository's top folder.
pub fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().and_then(Path::parent).expect("bin/kilonova is two levels below the top")
}

/// The standard error of a command that has ended.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn fresh_database(server: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let made = runtime.expect("the runtime starts").block_on(kilonova_testkit::fresh_postgres());
    let Some(kilonova_store::DatabaseUrl::Postgres(made)) = made else {
        panic!("{server} is not PostgreSQL");
    };
    let name = made.database().expect("the database has a name");
    let (scheme, rest) = server.split_once("://").expect("the server is a URL");
    let (host, path) = rest.split_once('/').expect("the URL has a database");
    let options = path.split_once('?').map_or(String::new(), |(_, options)| format!("?{options}"));
    format!("{scheme}://{host}/{name}{options}")
}
