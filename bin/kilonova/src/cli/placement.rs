//! `kilonova placement …`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use kilonova_store::{DatabaseUrl, Options, Store};

use super::examples;
use crate::cloud::default_clouds;
use crate::config::{CommandLine, Settings};
use crate::failure::Failure;
use crate::import::{self, ImportSource};
use crate::serve::migrations;
use crate::state::{StateDir, check_database, check_known_cloud};

/// Arguments of `placement`.
#[derive(Debug, Args)]
pub struct PlacementArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copy the providers, inventories, traits, aggregates, consumers and allocations of another
    /// Placement and verify the copy. Exits 1 if anything differs. May be run again.
    #[command(after_help = examples::IMPORT)]
    Import(Import),
}

#[derive(Debug, Args)]
struct Import {
    /// URL of the other Placement. Default with --cloud: its endpoint in the catalog.
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// Token of an admin there. Default: OS_TOKEN.
    #[arg(long, conflicts_with_all = ["cloud", "noauth"])]
    token: Option<String>,
    /// User name, if the other Placement has auth_strategy = noauth2.
    #[arg(long, value_name = "USER", conflicts_with = "cloud")]
    noauth: Option<String>,
    /// Cloud in clouds.yaml with an admin's credentials.
    #[arg(long, value_name = "NAME")]
    cloud: Option<String>,
    /// Path of clouds.yaml. Default: as for the openstack client.
    #[arg(long, value_name = "FILE")]
    clouds: Option<PathBuf>,
    /// Certificate authority of the other Placement. Default: the system's.
    #[arg(long, value_name = "FILE")]
    cafile: Option<PathBuf>,
    /// Configuration file in oslo's INI form. Default: none.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// State directory of this cloud. Default: kilonova-state.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Database URL of this cloud. Default: SQLite in the state directory.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

pub(super) fn run(options: PlacementArgs) -> Result<ExitCode, Failure> {
    let Command::Import(options) = options.command;
    let arguments = CommandLine {
        state_dir: options.state_dir,
        database: options.database,
        ..CommandLine::default()
    };
    let settings = Settings::read(options.config.as_deref(), arguments)?;
    let url = settings.database_url()?;
    let named = options.token.or(options.noauth);
    let from_environment = || {
        let token = std::env::var("OS_TOKEN").ok();
        token.filter(|_| options.cloud.is_none())
    };
    let from = ImportSource {
        url: options.from,
        token: named.or_else(from_environment),
        cloud: options.cloud.clone(),
        clouds: options.clouds.unwrap_or_else(default_clouds),
        cafile: options.cafile,
    };
    let exact = super::runtime()?.block_on(async {
        // A typing error must not leave anything behind.
        let source = import::open(from).await?;
        let _owned = own(&url, &settings.state_dir)?;
        let opened = Store::open_with(&url, &Options::for_command()).await;
        let store = opened.map_err(|e| Failure::Refused(e.to_string()))?;
        let is_new = store.is_new().await.map_err(|e| Failure::Failed(e.to_string()))?;
        check_database(&settings.state_dir, is_new)?;
        check_known_cloud(&settings.state_dir, &store).await?;
        store.migrate(&migrations()).await.map_err(|e| Failure::Failed(e.to_string()))?;
        import::run(source, &store).await
    })?;
    Ok(if exact { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Takes the state directory of a cloud on SQLite: a running controller would not notice another
/// process's writes.
fn own(url: &DatabaseUrl, state_dir: &Path) -> Result<Option<StateDir>, Failure> {
    let DatabaseUrl::Sqlite(file) = url else { return Ok(None) };
    if !state_dir.is_dir() {
        return Err(Failure::Refused(format!(
            "no state directory {}; create it, or set --state-dir to that of a controller",
            state_dir.display()
        )));
    }
    StateDir::check_private(state_dir)?;
    check_database(state_dir, !file.exists())?;
    let owned = StateDir::take(state_dir)?;
    // The first start may come later, and the database holds credentials then.
    owned.make_private()?;
    Ok(Some(owned))
}
