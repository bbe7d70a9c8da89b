//! Checks the configuration file: all of its errors, and the locations that it names.

use std::path::{Path, PathBuf};

use kilonova_compute_app::attention::Level;
use kilonova_node::topology::Topology;
use kilonova_store::DatabaseUrl;

use super::{DoctorOptions, Report};
use crate::config::{self, CommandLine, Settings};
use crate::failure::Failure;

const AREA: &str = "configuration";
const REMEDY: &str = "correct it; kilonova serve does not start with it";

/// The locations to check.
pub struct Locations {
    /// The configuration file, if one is given.
    pub config: Option<PathBuf>,
    /// The state directory.
    pub state_dir: PathBuf,
    /// True if the state directory was given, not the default.
    pub named: bool,
    /// The database.
    pub database: DatabaseUrl,
    /// The settings, unless the configuration file has errors.
    pub settings: Option<Box<Settings>>,
}

/// Checks the configuration and determines the locations, even if the file has errors.
pub(super) fn examine(options: &DoctorOptions, report: &mut Report) -> Result<Locations, Failure> {
    let config = options.config.clone();
    let problems = config.as_deref().map(config::problems).unwrap_or_default();
    let about = match &config {
        Some(file) => file.display().to_string(),
        None => "no file: the defaults".to_owned(),
    };
    report.area(AREA, about);
    for problem in &problems {
        report.find(AREA, Level::Error, problem, REMEDY);
    }
    let (state_dir, database, settings) = if problems.is_empty() {
        let (state_dir, database) = (options.state_dir.clone(), options.database.clone());
        let arguments = CommandLine { state_dir, database, ..CommandLine::default() };
        let settings = Settings::read(config.as_deref(), arguments)?;
        let database = settings.database_url()?;
        (settings.state_dir.clone(), database, Some(settings))
    } else {
        let (state_dir, database) = locations_of_broken_file(options)?;
        (state_dir, database, None)
    };
    if let Some((settings, file)) =
        settings.as_ref().and_then(|all| Some((all, all.nodes.as_ref()?)))
    {
        topology(settings, file, report);
    }
    let configured =
        || config.as_deref().is_some_and(|file| config::places(file).state_dir.is_some());
    let named = options.state_dir.is_some() || configured();
    Ok(Locations { config, state_dir, named, database, settings: settings.map(Box::new) })
}

/// The state directory and database, from the command line or from a file with other errors.
fn locations_of_broken_file(options: &DoctorOptions) -> Result<(PathBuf, DatabaseUrl), Failure> {
    let configured = options.config.as_deref().map(config::places).unwrap_or_default();
    let state_dir = options.state_dir.clone().or(configured.state_dir);
    let state_dir = state_dir.unwrap_or_else(|| PathBuf::from("kilonova-state"));
    let (option, url) = match &options.database {
        Some(url) => ("--database", Some(url.clone())),
        None => ("[database] connection", configured.database),
    };
    let database = match url {
        None => DatabaseUrl::Sqlite(state_dir.join("kilonova.db")),
        Some(url) => url
            .parse()
            .map_err(|e: kilonova_store::Error| Failure::Refused(format!("{option}: {e}")))?,
    };
    Ok((state_dir, database))
}

fn topology(settings: &Settings, file: &Path, report: &mut Report) {
    if let Err(error) = Topology::read_with(file, &settings.devices, &settings.sources.cleanup) {
        let remedy = "correct the topology; kilonova serve does not start with it";
        report.find(AREA, Level::Error, error.to_string(), remedy);
    }
}
