//! What `kilonova doctor` looks at, each finding with its remedy.
//!
//! ```text
//!   configuration   every problem of the file, the topology that it names
//!   files           who else may read what is secret
//!   store           room, schema, integrity, the write-ahead log
//!   nodes, devices, clock, operations    `kilonova_compute::attention`
//!   ledger          the audit
//! ```
//!
//! It only reads, beside a running server or on what a stopped one has left. With `--redate` it
//! changes one thing first: times that lie in the future.

mod configuration;
mod disk;
mod files;
mod report;
mod store;

use std::path::PathBuf;

use kilonova_compute::attention::{self, Bounds, Heard, Level, clocks};
use kilonova_compute::audit;
use kilonova_store::{DatabaseUrl, Store};
use kilonova_wire::time::now_micros;

use crate::failure::Failure;
use crate::state::StateDir;
use configuration::Where;
pub use report::Report;

/// What is asked.
pub struct Question {
    /// Configuration in oslo's INI form.
    pub config: Option<PathBuf>,
    /// The state directory.
    pub state_dir: Option<PathBuf>,
    /// The database, where it is not in the state directory.
    pub database: Option<String>,
    /// Whether rows that are newer than this machine's clock get the present time first.
    pub redate: bool,
    /// Microseconds for which an operation may stand still.
    pub stuck: i64,
}

/// Looks at all of it. What was found before something could not be looked at is in the report, with
/// the reason.
pub async fn examine(question: Question) -> Report {
    let mut report = Report::default();
    let place = match configuration::examine(&question, &mut report) {
        Ok(place) => place,
        Err(why) => return report.ended(why),
    };
    if !place.state_dir.is_dir()
        && (place.named || matches!(place.database, DatabaseUrl::Sqlite(_)))
    {
        return report.ended(Failure::Refused(format!(
            "there is no state directory {}; name that of a server with --state-dir",
            place.state_dir.display()
        )));
    }
    files::examine(&place, &mut report);
    match look(&question, &place, &mut report).await {
        Ok(()) => report,
        Err(why) => report.ended(why),
    }
}

async fn look(question: &Question, place: &Where, report: &mut Report) -> Result<(), Failure> {
    let url = &place.database;
    if let DatabaseUrl::Sqlite(file) = url
        && !file.exists()
    {
        return Err(Failure::Refused(format!(
            "there is no database at {}; name the state directory of a server with --state-dir",
            file.display()
        )));
    }
    let on_disk = store::on_disk(url, report);
    let store = match Store::open(url).await {
        Ok(store) => store,
        Err(error) => return Err(store::closed(url, &error, report)),
    };
    store::examine(&store, on_disk, report).await?;
    if question.redate {
        let redated = clocks::redate(&store, now_micros()).await;
        report.redated = Some(redated.map_err(|e| Failure::Failed(e.to_string()))?);
    }
    // With PostgreSQL a server of another machine may be the one that listens.
    let listening = match url {
        DatabaseUrl::Sqlite(_) => StateDir::check_free(&place.state_dir).is_err(),
        DatabaseUrl::Postgres(_) => true,
    };
    let unread = |e: &dyn std::fmt::Display| {
        Failure::Refused(format!("there is no ledger that can be checked: {e}"))
    };
    let bounds = Bounds { stuck: question.stuck, listening };
    let notices = attention::look(&store, &bounds).await.map_err(|e| unread(&e))?;
    report.hosts = attention::heard(&store).await.map_err(|e| unread(&e))?;
    report.rules = audit::run(&store).await.map_err(|e| unread(&e))?;
    let counted = nodes(&report.hosts);
    for (area, about) in [
        ("nodes", counted),
        ("clock", skews(&report.hosts)),
        ("operations", format!("none stands still for {} s", question.stuck / 1_000_000)),
        ("devices", "all in health".to_owned()),
    ] {
        report.area(area, about);
    }
    for notice in notices {
        report.find(notice.area, notice.level, notice.what, notice.remedy);
    }
    report.area("ledger", format!("{} rules hold", report.rules.len()));
    let broken: Vec<(&str, String, Option<&str>)> = report
        .rules
        .iter()
        .filter(|rule| !rule.rows.is_empty())
        .map(|rule| (rule.rule, rule.rows.join(", "), rule.remedy))
        .collect();
    for (rule, rows, remedy) in broken {
        let what = format!("{rule}: BROKEN by {rows}");
        let remedy = remedy.unwrap_or(
            "keep a copy of the database and the log, and report it; no service repairs it by \
                      itself, and what it names should not be touched until then",
        );
        report.find("ledger", Level::Error, what, remedy);
    }
    Ok(())
}

fn nodes(hosts: &[Heard]) -> String {
    let up = hosts.iter().filter(|host| host.up).count();
    let disabled = hosts.iter().filter(|host| !host.enabled).count();
    let disabled = if disabled == 0 { String::new() } else { format!(", {disabled} disabled") };
    format!("{} hosts, {up} of them up{disabled}", hosts.len())
}

fn skews(hosts: &[Heard]) -> String {
    let told: Vec<i64> = hosts.iter().filter_map(|host| host.clock_skew).map(i64::abs).collect();
    match told.iter().max() {
        None => "no host has one of its own, or has told it".to_owned(),
        Some(most) => {
            let seconds = *most as f64 / 1e6;
            format!("{} hosts told theirs, at most {seconds:.1} s from ours", told.len())
        }
    }
}
