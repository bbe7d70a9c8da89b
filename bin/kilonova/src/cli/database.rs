//! `kilonova database copy`: copies a stopped cloud's database into an empty one, from SQLite to
//! PostgreSQL and back. No tables are named here; the store copies the tables of the migrations.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use kilonova_flow::lease;
use kilonova_store::copy::{self, CopiedTable, Copy};
use kilonova_store::{DatabaseUrl, Options, Store};
use serde_json::json;

use super::{Format, examples};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::serve::{leader, migrations};
use crate::state::StateDir;

/// The interval at which the lease of a controller is read.
const LOOK: Duration = Duration::from_millis(250);
/// The parts of a cloud that are not in its database.
const ALSO: [&str; 4] = [
    "the sealing key (seal.key of the state directory, or [seal] key_file): every controller needs it",
    "image files ([glance_store] filesystem_store_datadir, images/ of the state directory): every controller \
     needs them; data in an object store stays there",
    "clouds.yaml and openrc of the state directory: the admin's credentials",
    "nodes/ of the state directory: the simulated hosts of serve --nodes, if there are any",
];

/// Arguments of `database`.
#[derive(Debug, Args)]
pub struct DatabaseArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copy all rows into an empty database and verify them. Stop all controllers first. Does not change the
    /// source. Exits 2 if nothing was copied, 1 if the copy is incomplete.
    #[command(after_help = examples::DATABASE)]
    Copy(CopyArgs),
}

#[derive(Debug, Args)]
struct CopyArgs {
    /// The database of the stopped cloud: sqlite:///FILE or postgresql://USER@HOST/DATABASE, with the
    /// parameters of [database] connection_parameters.
    #[arg(long, value_name = "URL")]
    from: String,
    /// The new database: an empty PostgreSQL database, or a file that does not exist.
    #[arg(long, value_name = "URL")]
    to: String,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn run(options: DatabaseArgs) -> Result<ExitCode, Failure> {
    let Command::Copy(options) = options.command;
    kilonova_program::logs::start(false, None);
    let output = super::runtime()?.block_on(copy(&options))?;
    super::say_done(&output)?;
    Ok(ExitCode::SUCCESS)
}

async fn copy(options: &CopyArgs) -> Result<String, Failure> {
    let parse = |name: &str, url: &str| {
        url.parse::<DatabaseUrl>().map_err(|e| Failure::Refused(format!("{name}: {e}")))
    };
    let (from, to) = (parse("--from", &options.from)?, parse("--to", &options.to)?);
    let _owned = lock_state_dir(&from)?;
    if let DatabaseUrl::Sqlite(_) = &to {
        // The database holds credentials: only its owner may read it.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    }
    let source = open("--from", &from).await?;
    let target = open("--to", &to).await?;
    let migrations = migrations();
    let checked = Copy::check(&source, &target, &migrations).await;
    checked.map_err(|e| Failure::Refused(e.to_string()))?;
    check_stopped(&source).await.map_err(Failure::Refused)?;
    let uncopied_tables = [kilonova_changes::LOG, lease::TABLES].concat();
    let copy =
        Copy::begin(&source, &target, &migrations, &uncopied_tables).await.map_err(incomplete)?;
    let mut progress = Progress::new();
    let total = usize::try_from(copy.rows()).unwrap_or(usize::MAX);
    let count = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
    progress.begin("rows copied", total);
    let copied = copy.run(|rows| progress.many(count(rows))).await;
    progress.end();
    copied.map_err(incomplete)?;
    progress.begin("rows verified", total.saturating_mul(2));
    let verified = copy.verify(|rows| progress.many(count(rows))).await;
    progress.end();
    let tables = verified.map_err(incomplete)?;
    // A controller that was started meanwhile may have changed rows that were already copied.
    check_stopped(&source).await.map_err(incomplete)?;
    let uncopied_tables: Vec<String> = copy.begun_anew().map(str::to_owned).collect();
    copy.complete().await.map_err(incomplete)?;
    Ok(report(options, &tables, &uncopied_tables))
}

fn incomplete(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!(
        "the copy is incomplete, and no controller starts on the target: {error}"
    ))
}

/// Takes the lock of a SQLite database's state directory, as a running controller does.
fn lock_state_dir(from: &DatabaseUrl) -> Result<Option<StateDir>, Failure> {
    let DatabaseUrl::Sqlite(file) = from else { return Ok(None) };
    if !file.exists() {
        return Err(Failure::Refused(format!("--from: no database at {}", file.display())));
    }
    let folder = file.parent().filter(|path| !path.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    if !folder.join("lock").exists() {
        return Ok(None);
    }
    if StateDir::is_owned(folder) {
        return Err(Failure::Refused(format!(
            "--from: a controller runs on {}: stop it (systemctl stop kilonova)",
            folder.display()
        )));
    }
    StateDir::take(folder).map(Some)
}

async fn open(option: &str, url: &DatabaseUrl) -> Result<Store, Failure> {
    let opened = Store::open_with(url, &Options::for_command()).await;
    opened.map_err(|e| Failure::Refused(format!("{option}: {e}")))
}

/// Checks that no controller uses the database; the error says what to do. The lease of a killed controller
/// lasts for a few seconds; a running controller renews it.
async fn check_stopped(store: &Store) -> Result<(), String> {
    let begun = Instant::now();
    let expiry = || async {
        let hold = lease::expiry(store, leader::NAME).await.map_err(|error| error.to_string())?;
        Ok::<_, String>(hold.filter(|(expires, now)| expires > now).map(|(expires, _)| expires))
    };
    let first = expiry().await?;
    let mut last = first;
    while last.is_some() && last == first && begun.elapsed() < leader::PERIOD {
        tokio::time::sleep(LOOK).await;
        last = expiry().await?;
    }
    if last.is_some() && last != first {
        return Err("a controller runs on the source: stop all controllers (systemctl stop kilonova on each)"
            .into());
    }
    match copy::other_users(store).await {
        Ok(0) => Ok(()),
        Ok(number) => Err(format!(
            "{number} other connection(s) of Kilonova use the source (pg_stat_activity lists them): stop all \
             controllers and tools"
        )),
        Err(error) => Err(error.to_string()),
    }
}

fn report(options: &CopyArgs, tables: &[CopiedTable], uncopied_tables: &[String]) -> String {
    let rows: u64 = tables.iter().map(|table| table.rows).sum();
    if options.format == Format::Json {
        let each = tables.iter().map(|table| {
            json!({"table": table.name, "rows": table.rows,
                "checksum": format!("{:032x}", table.checksum)})
        });
        let all = json!({"tables": each.collect::<Vec<_>>(), "rows": rows, "verified": true,
            "begun_anew": uncopied_tables, "not_in_the_database": ALSO});
        return format!("{all}\n");
    }
    let width = tables.iter().map(|table| table.name.len()).max().unwrap_or(0);
    let mut text = format!("{:width$}  {:>10}  checksum\n", "table", "rows");
    for table in tables {
        let (name, rows, sum) = (&table.name, table.rows, table.checksum);
        text.push_str(&format!("{name:width$}  {rows:>10}  {sum:032x}\n"));
    }
    text.push_str(&format!(
        "\nVerified: {rows} rows of {} tables are the same on both sides. Reset: {}.\n\n\
         Not in the database, needed where controllers run on the copy:\n",
        tables.len(),
        uncopied_tables.join(", ")
    ));
    for also in ALSO {
        text.push_str(&format!("- {also}\n"));
    }
    text.push_str(
        "\nNext: set [database] connection to the copy, start one controller, and run kilonova doctor. Do \
         not start a controller on the source again: the hosts would follow both.\n",
    );
    text
}

#[cfg(test)]
mod tests;
