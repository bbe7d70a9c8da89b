//! Logs go to standard error: text on a terminal, otherwise JSON, unless the operator chooses.
//! `RUST_LOG` filters them.

use std::io::IsTerminal;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// The valid values.
    pub const EXPECTED: &str = "text or json";

    /// The default format for the current standard error.
    fn fitting() -> Self {
        if std::io::stderr().is_terminal() { Self::Text } else { Self::Json }
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("{other} is not known; choose {}", Self::EXPECTED)),
        }
    }
}

/// Starts logging. Without a format, it depends on whether standard error is a terminal.
pub fn start(debug: bool, format: Option<LogFormat>) {
    let default = if debug { "info,kilonova=debug,kilonova_wire=debug" } else { "info" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // Its debug lines contain statement parameters, including password hashes.
    let filter = match "tokio_postgres=info".parse() {
        Ok(quiet) => filter.add_directive(quiet),
        Err(_) => filter,
    };
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format.unwrap_or_else(LogFormat::fitting) {
        // Colours are only for terminals, and NO_COLOR turns them off.
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            logs.with_target(false).with_ansi(colours).try_init()
        }
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
    if let Err(error) = started {
        eprintln!("kilonova: could not start logging: {error}");
    }
}
