//! `kilonova placement …`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use kilonova_store::{DatabaseUrl, Store};

use super::examples;
use crate::cloud::default_clouds;
use crate::config::{Settings, Told};
use crate::failure::Failure;
use crate::import::{self, From};
use crate::serve::migrations;
use crate::state::StateDir;

/// Options of `placement`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copy another Placement's providers, inventories, traits, aggregates, consumers and
    /// allocations into ours, and compare; exit 1 when something differs. May be run again.
    #[command(after_help = examples::IMPORT)]
    Import(Import),
}

#[derive(Debug, Args)]
struct Import {
    /// The other Placement; with --cloud, its endpoint in the catalog otherwise.
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// A token of an admin; OS_TOKEN otherwise.
    #[arg(long, conflicts_with_all = ["cloud", "noauth"])]
    token: Option<String>,
    /// The user to be, where the other one has auth_strategy = noauth2.
    #[arg(long, value_name = "USER", conflicts_with = "cloud")]
    noauth: Option<String>,
    /// A cloud of clouds.yaml whose user is an admin.
    #[arg(long, value_name = "NAME")]
    cloud: Option<String>,
    /// Where clouds.yaml is.
    #[arg(long, value_name = "FILE")]
    clouds: Option<PathBuf>,
    /// Certificate authority of the other one.
    #[arg(long, value_name = "FILE")]
    cafile: Option<PathBuf>,
    /// Configuration in oslo's INI form.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Our state directory.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Our database, where it is not in the state directory.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

pub(super) fn run(options: Options) -> Result<ExitCode, Failure> {
    let Command::Import(options) = options.command;
    let told = Told { state_dir: options.state_dir, database: options.database, ..Told::default() };
    let settings = Settings::read(options.config.as_deref(), told)?;
    let url = settings.database_url()?;
    let named = options.token.or(options.noauth);
    let from_environment = || {
        let token = std::env::var("OS_TOKEN").ok();
        token.filter(|_| options.cloud.is_none())
    };
    let from = From {
        url: options.from,
        token: named.or_else(from_environment),
        cloud: options.cloud.clone(),
        clouds: options.clouds.unwrap_or_else(default_clouds),
        cafile: options.cafile,
    };
    // A server on SQLite would not see what another process writes.
    let _owned = match &url {
        DatabaseUrl::Sqlite(_) => Some(StateDir::take(&settings.state_dir)?),
        DatabaseUrl::Postgres(_) => None,
    };
    let exact = super::runtime()?.block_on(async {
        let store = Store::open(&url).await.map_err(|e| Failure::Refused(e.to_string()))?;
        store.migrate(&migrations()).await.map_err(|e| Failure::Failed(e.to_string()))?;
        import::run(from, &store).await
    })?;
    Ok(if exact { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
