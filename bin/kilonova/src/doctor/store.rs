//! The database: its schema, whether its pages are whole, its write-ahead log, and room to grow.

use std::path::Path;

use kilonova_compute::attention::Level;
use kilonova_store::{DatabaseUrl, Store, params};

use super::{Report, disk};
use crate::failure::Failure;
use crate::serve::migrations;

const AREA: &str = "store";
const MIB: u64 = 1024 * 1024;
/// A log that is longer is not being written back.
const LOG: u64 = 256 * MIB;
/// Room below which an operator should look, and below which writes will fail soon.
const LITTLE: u64 = 1024 * MIB;
const HARDLY_ANY: u64 = 100 * MIB;
/// Damaged places that are told.
const TOLD: usize = 5;

/// What the files say, before anything opens them: whoever closes a database last tidies its log.
pub(super) fn on_disk(url: &DatabaseUrl, report: &mut Report) -> Option<String> {
    let DatabaseUrl::Sqlite(file) = url else { return None };
    let (size, written) = disk::file(file)?;
    let mut about = format!("SQLite, {}", disk::shown(size));
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    match disk::file(Path::new(&log)) {
        None => about.push_str(", no log"),
        Some((log, _)) => {
            about.push_str(&format!(
                ", log {}, last written back {written} s ago",
                disk::shown(log)
            ));
            if log > LOG {
                let what = format!(
                    "the write-ahead log is {} long and was last written back {written} s ago",
                    disk::shown(log)
                );
                let remedy = "something has kept the database open for reading all that time: end it \
                              (`fuser` on the database names it), or start kilonova serve anew";
                report.find(AREA, Level::Warning, what, remedy);
            }
        }
    }
    let folder = file.parent().filter(|path| !path.as_os_str().is_empty());
    if let Some((free, all)) = disk::room(folder.unwrap_or(Path::new("."))) {
        about.push_str(&format!(", {} free", disk::shown(free)));
        let level = match free {
            free if free < HARDLY_ANY => Some(Level::Error),
            free if free < LITTLE || free < all / 100 => Some(Level::Warning),
            _ => None,
        };
        if let Some(level) = level {
            let what = format!("only {} are free where the database is", disk::shown(free));
            let remedy = "make room there; without any, nothing is written and every request fails";
            report.find(AREA, level, what, remedy);
        }
    }
    Some(about)
}

/// A database that cannot even be opened.
pub(super) fn closed(
    url: &DatabaseUrl,
    error: &kilonova_store::Error,
    report: &mut Report,
) -> Failure {
    let remedy = match url {
        DatabaseUrl::Sqlite(_) => {
            "see that it is the right file and that this user may read it; one that is damaged: stop \
             kilonova serve, keep a copy, and take the last good backup"
        }
        DatabaseUrl::Postgres(_) => {
            "see that PostgreSQL runs, and that address, user and password are right"
        }
    };
    report.area(AREA, "it cannot be opened");
    report.find(AREA, Level::Error, error.to_string(), remedy);
    Failure::Refused(error.to_string())
}

/// Schema and integrity.
pub(super) async fn examine(
    store: &Store,
    on_disk: Option<String>,
    report: &mut Report,
) -> Result<(), Failure> {
    let unread = |e: kilonova_store::Error| {
        Failure::Refused(format!("there is no ledger that can be checked: {e}"))
    };
    if store.dialect() == "sqlite" {
        integrity(store, report).await?;
    }
    let applied = store.applied().await.map_err(unread)?;
    let known = migrations();
    let missing: Vec<&str> = known
        .iter()
        .map(|one| one.name)
        .filter(|name| !applied.iter().any(|have| have == name))
        .collect();
    let strange = applied.iter().find(|have| !known.iter().any(|one| one.name == **have));
    if let Some(strange) = strange {
        let what = format!("its schema is of a newer kilonova: {strange} is not known here");
        let remedy = "use that version; an older one does not start on it";
        report.find(AREA, Level::Error, what, remedy);
    }
    if !missing.is_empty() {
        let what = format!(
            "its schema is of an older kilonova: {} of {} steps are missing ({})",
            missing.len(),
            known.len(),
            missing.join(", ")
        );
        let remedy = "start kilonova serve of this version: it brings the schema up to date";
        report.find(AREA, Level::Error, what, remedy);
    }
    let about = match on_disk {
        Some(about) => about,
        None => postgres(store).await.map_err(unread)?,
    };
    report.area(AREA, format!("{about}, schema of {} steps", applied.len()));
    Ok(())
}

async fn integrity(store: &Store, report: &mut Report) -> Result<(), Failure> {
    let check = store.read(|tx| {
        let mut wrong = Vec::new();
        for row in tx.rows("PRAGMA quick_check(5)", params![])? {
            wrong.push(row.string(0)?);
        }
        wrong.retain(|line| line != "ok");
        let orphans = tx.rows("PRAGMA foreign_key_check", params![])?;
        for row in orphans.iter().take(TOLD) {
            let (table, of) = (row.string(0)?, row.string(2)?);
            wrong.push(format!("a row of {table} names one of {of} that is not there"));
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
            "stop kilonova serve, keep a copy, and take the last good backup; look at the disk";
        report.find(AREA, Level::Error, what, remedy);
    }
    Ok(())
}

async fn postgres(store: &Store) -> Result<String, kilonova_store::Error> {
    const ABOUT: &str = "SELECT current_setting('server_version'),
        CAST(pg_database_size(current_database()) AS BIGINT)";
    store
        .read(|tx| {
            let row = tx.row(ABOUT, params![])?;
            let Some(row) = row else { return Ok("PostgreSQL".to_owned()) };
            let size = u64::try_from(row.int(1)?).unwrap_or_default();
            Ok(format!("PostgreSQL {}, {}", row.text(0)?, disk::shown(size)))
        })
        .await
}
