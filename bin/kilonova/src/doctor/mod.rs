//! The checks of `kilonova doctor`; each finding has a remedy.
//!
//! ```text
//!   configuration   all errors of the file and of the topology that it names
//!   files           who else can read secrets
//!   tls             the certificate of the API
//!   store           free space, schema, integrity, the write-ahead log
//!   secrets         the sealing key, token keys, authorities, certificates of hosts
//!   images          the object store of image data, or the Glance of the cloud
//!   volumes         the Cinder of the cloud
//!   networks        the Neutron of the cloud
//!   nodes, clock, operations, devices, routers    `kilonova_compute_app::attention`
//!   ledger          the audit
//! ```
//!
//! It only reads, whether or not a controller is running. With `--redate` it first changes times that
//! lie in the future.

mod configuration;
mod disk;
mod files;
mod images;
mod networks;
mod report;
mod secrets;
mod store;
mod tls;
mod volumes;

use std::path::PathBuf;

use configuration::Locations;
use jiff::SignedDuration;
use kilonova_compute_app::attention::report::{broken, summaries};
use kilonova_compute_app::attention::{self, Bounds, clocks};
use kilonova_compute_db::audit;
use kilonova_store::{DatabaseUrl, Options, Store};
use kilonova_wire::time;

use crate::failure::Failure;
use crate::state::StateDir;
pub use report::Report;

/// The options of the checks.
pub struct DoctorOptions {
    /// Configuration file in oslo's INI form.
    pub config: Option<PathBuf>,
    /// The state directory.
    pub state_dir: Option<PathBuf>,
    /// Database URL; `None` for SQLite in the state directory.
    pub database: Option<String>,
    /// True to set times that lie in the future to now first.
    pub redate: bool,
    /// The time without progress after which an operation counts as stuck.
    pub stuck: SignedDuration,
}

/// Runs all checks. If one cannot run, the output contains the earlier findings and the reason.
pub async fn examine(options: DoctorOptions) -> Report {
    let mut report = Report::default();
    let place = match configuration::examine(&options, &mut report) {
        Ok(place) => place,
        Err(why) => return report.ended(why),
    };
    if !place.state_dir.is_dir()
        && (place.named || matches!(place.database, DatabaseUrl::Sqlite(_)))
    {
        return report.ended(Failure::Refused(format!(
            "no state directory {}; set --state-dir to that of a controller",
            place.state_dir.display()
        )));
    }
    files::examine(&place, &mut report);
    tls::examine(&place, &mut report);
    match examine_database(&options, &place, &mut report).await {
        Ok(()) => report,
        Err(why) => report.ended(why),
    }
}

async fn examine_database(
    options: &DoctorOptions,
    place: &Locations,
    report: &mut Report,
) -> Result<(), Failure> {
    let url = &place.database;
    if let DatabaseUrl::Sqlite(file) = url
        && !file.exists()
    {
        return Err(Failure::Refused(format!(
            "no database at {}; set --state-dir to that of a controller",
            file.display()
        )));
    }
    let on_disk = store::on_disk(url, report);
    let store = match Store::open_with(url, &Options::for_command()).await {
        Ok(store) => store,
        Err(error) => return Err(store::closed(url, &error, report)),
    };
    store::examine(&store, on_disk, report).await?;
    if options.redate {
        let redated = clocks::redate(&store, time::now()).await;
        report.redated = Some(redated.map_err(|e| Failure::Failed(e.to_string()))?);
    }
    secrets::examine(&store, place, report).await;
    images::examine(&store, place, report).await;
    volumes::examine(place, report).await;
    networks::examine(place, report).await;
    // With PostgreSQL, the controller may run on another machine.
    let listening = match url {
        DatabaseUrl::Sqlite(_) => StateDir::check_free(&place.state_dir).is_err(),
        DatabaseUrl::Postgres(_) => true,
    };
    let unread =
        |e: &dyn std::fmt::Display| Failure::Refused(format!("cannot read the ledger: {e}"));
    let bounds = Bounds { stuck: options.stuck, listening };
    let findings = attention::collect(&store, &bounds).await.map_err(|e| unread(&e))?;
    report.hosts = attention::contacts(&store).await.map_err(|e| unread(&e))?;
    report.rules = audit::run(&store).await.map_err(|e| unread(&e))?;
    for (area, about) in summaries(&report.hosts, &bounds) {
        report.area(area, about);
    }
    for finding in findings {
        report.find(finding.area, finding.level, finding.what, finding.remedy);
    }
    report.area("ledger", format!("{} rules hold", report.rules.len()));
    for finding in broken(&report.rules, usize::MAX) {
        report.find(finding.area, finding.level, finding.what, finding.remedy);
    }
    Ok(())
}
