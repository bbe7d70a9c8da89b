//! Logs go to standard error: for people on a terminal, JSON otherwise. `RUST_LOG` narrows them.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging.
pub fn start(debug: bool) {
    let default = if debug { "info,kilonova=debug,kilonova_wire=debug" } else { "info" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // Its debug lines hold the parameters of statements, password hashes among them.
    let filter = match "tokio_postgres=info".parse() {
        Ok(quiet) => filter.add_directive(quiet),
        Err(_) => filter,
    };
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if std::io::stderr().is_terminal() {
        logs.try_init()
    } else {
        logs.json().flatten_event(true).try_init()
    };
    if let Err(error) = started {
        eprintln!("kilonova: logs cannot be started: {error}");
    }
}
