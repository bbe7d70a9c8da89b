//! Checks the database: its schema, integrity, write-ahead log, and free space.

use std::path::Path;

use kilonova_compute_app::attention::Level;
use kilonova_store::{DatabaseUrl, Migration, Store, System, params};

use super::{Report, disk};
use crate::failure::Failure;
use crate::serve::migrations;

const AREA: &str = "store";
const MIB: u64 = 1024 * 1024;
/// A longer log is not being checkpointed.
const LOG: u64 = 256 * MIB;
/// Free space below which to warn, and below which writes are about to fail.
const LOW: u64 = 1024 * MIB;
const CRITICAL: u64 = 100 * MIB;
/// The areas that need the schema of this program.
const UNREAD: [&str; 9] = [
    "secrets",
    "images",
    "networks",
    "nodes",
    "clock",
    "operations",
    "devices",
    "routers",
    "ledger",
];
/// Maximum number of damaged places to report.
const MAX_LISTED: usize = 5;

/// Inspects the files before anything opens them: closing a database checkpoints its log.
pub(super) fn on_disk(url: &DatabaseUrl, report: &mut Report) -> Option<String> {
    let DatabaseUrl::Sqlite(file) = url else { return None };
    let (size, written) = disk::file(file)?;
    let mut about = format!("SQLite, {}", disk::shown(size));
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    match disk::file(Path::new(&log)) {
        None => about.push_str(", no log"),
        Some((log, _)) => {
            about.push_str(&format!(", log {}, last checkpoint {written} s ago", disk::shown(log)));
            if log > LOG {
                let what = format!(
                    "the write-ahead log has grown to {}; the last checkpoint was {written} s ago",
                    disk::shown(log)
                );
                let remedy = "a long-running reader prevents checkpoints: end it (`fuser` on the \
                                              database names it), or restart kilonova serve";
                report.find(AREA, Level::Warning, what, remedy);
            }
        }
    }
    let folder = file.parent().filter(|path| !path.as_os_str().is_empty());
    if let Some((free, all)) = disk::room(folder.unwrap_or(Path::new("."))) {
        about.push_str(&format!(", {} free", disk::shown(free)));
        let level = match free {
            free if free < CRITICAL => Some(Level::Error),
            free if free < LOW || free < all / 100 => Some(Level::Warning),
            _ => None,
        };
        if let Some(level) = level {
            let what =
                format!("only {} are free on the file system of the database", disk::shown(free));
            let remedy = "free some space; when it is full, every write fails";
            report.find(AREA, level, what, remedy);
        }
    }
    Some(about)
}

/// Reports a database that cannot be opened.
pub(super) fn closed(
    url: &DatabaseUrl,
    error: &kilonova_store::Error,
    report: &mut Report,
) -> Failure {
    let remedy = match url {
        DatabaseUrl::Sqlite(_) => {
            "check that it is the right file and that this user may read it; if it is damaged: stop \
                         kilonova serve, keep a copy, and restore the last good backup"
        }
        DatabaseUrl::Postgres(_) => {
            "check that PostgreSQL runs, and that host, user and password are correct"
        }
    };
    report.area(AREA, "cannot be opened");
    report.find(AREA, Level::Error, error.to_string(), remedy);
    Failure::Refused(error.to_string())
}

/// Checks schema and integrity. Ends the checks if the schema is not that of this program: the other
/// checks could not read it.
pub(super) async fn examine(
    store: &Store,
    on_disk: Option<String>,
    report: &mut Report,
) -> Result<(), Failure> {
    let unread =
        |e: kilonova_store::Error| Failure::Refused(format!("cannot read the ledger: {e}"));
    if store.system() == System::Sqlite {
        integrity(store, report).await?;
    }
    let applied = store.applied().await.map_err(unread)?;
    let known = migrations();
    let missing: Vec<&str> = known
        .iter()
        .map(|one| one.name)
        .filter(|name| !applied.iter().any(|have| have == name))
        .collect();
    let strange = applied.iter().filter(|have| !known.iter().any(|one| one.name == **have));
    let contracts = |name: &&String| Migration::contracts(name);
    let mut other = None;
    if let Some(strange) = strange.clone().find(contracts) {
        other = Some("newer");
        let what = format!("the schema belongs to a newer kilonova: {strange} is unknown here");
        let remedy = "use that version; an older one does not start with it";
        report.find(AREA, Level::Error, what, remedy);
    } else if let Some(strange) = strange.clone().next_back() {
        let what = format!(
            "the schema belongs to a newer kilonova, and this one works with it: {strange}"
        );
        let remedy = "upgrade this program too; the next version may no longer work with it";
        report.find(AREA, Level::Warning, what, remedy);
    }
    if !missing.is_empty() {
        other = other.or(Some("older"));
        let what = format!(
            "the schema belongs to an older kilonova: {} of {} migrations are missing ({})",
            missing.len(),
            known.len(),
            missing.join(", ")
        );
        let remedy = "start kilonova serve of this version: it migrates the schema";
        report.find(AREA, Level::Error, what, remedy);
    }
    let about = match on_disk {
        Some(about) => about,
        None => postgres(store).await.map_err(unread)?,
    };
    report.area(AREA, format!("{about}, {} migrations", applied.len()));
    let Some(other) = other else { return Ok(()) };
    for area in UNREAD {
        report.skip(area, format!("not checked: the schema is {other}"));
    }
    Err(Failure::Refused(format!(
        "the checks of the database's content did not run: the schema is {other} than this program"
    )))
}

async fn integrity(store: &Store, report: &mut Report) -> Result<(), Failure> {
    let check = store.read(|tx| {
        let mut wrong = Vec::new();
        for row in tx.rows("PRAGMA quick_check(5)", params![])? {
            wrong.push(row.string("quick_check")?);
        }
        wrong.retain(|line| line != "ok");
        let orphans = tx.rows("PRAGMA foreign_key_check", params![])?;
        for row in orphans.iter().take(MAX_LISTED) {
            let (table, of) = (row.string("table")?, row.string("parent")?);
            wrong.push(format!("a row of {table} refers to a missing row of {of}"));
        }
        Ok::<_, kilonova_store::Error>(wrong)
    });
    let wrong = match check.await {
        Ok(wrong) => wrong,
        Err(error) => vec![error.to_string()],
    };
    if !wrong.is_empty() {
        let what = format!("the database is damaged: {}", wrong.join("; "));
        let remedy =
            "stop kilonova serve, keep a copy, restore the last good backup, and check the disk";
        report.find(AREA, Level::Error, what, remedy);
    }
    Ok(())
}

async fn postgres(store: &Store) -> Result<String, kilonova_store::Error> {
    const ABOUT: &str = "SELECT current_setting('server_version') AS version,
        CAST(pg_database_size(current_database()) AS BIGINT) AS size";
    store
        .read(|tx| {
            let row = tx.row(ABOUT, params![])?;
            let Some(row) = row else { return Ok("PostgreSQL".to_owned()) };
            let size = u64::try_from(row.int("size")?).unwrap_or_default();
            Ok(format!("PostgreSQL {}, {}", row.text("version")?, disk::shown(size)))
        })
        .await
}
