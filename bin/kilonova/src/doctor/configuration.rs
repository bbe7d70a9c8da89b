//! The configuration file: every problem of it, and where it says that everything is.

use std::path::{Path, PathBuf};

use kilonova_compute::attention::Level;
use kilonova_node::topology::Topology;
use kilonova_store::DatabaseUrl;

use super::{Question, Report};
use crate::config::{self, Settings, Told};
use crate::failure::Failure;

const AREA: &str = "configuration";
const MEND: &str = "mend it; kilonova serve does not start with it";

/// Where everything is.
pub struct Where {
    /// The file, where one is named.
    pub config: Option<PathBuf>,
    /// Keys, images, credentials.
    pub state_dir: PathBuf,
    /// Whether somebody said so, or it is the default.
    pub named: bool,
    /// The data.
    pub database: DatabaseUrl,
}

/// Reads it all, and finds out where to look next even when some of it is wrong.
pub(super) fn examine(question: &Question, report: &mut Report) -> Result<Where, Failure> {
    let config = question.config.clone();
    let problems = config.as_deref().map(config::problems).unwrap_or_default();
    let about = match &config {
        Some(file) => file.display().to_string(),
        None => "none is named: the defaults".to_owned(),
    };
    report.area(AREA, about);
    for problem in &problems {
        report.find(AREA, Level::Error, problem, MEND);
    }
    let (state_dir, database, nodes) = if problems.is_empty() {
        let (state_dir, database) = (question.state_dir.clone(), question.database.clone());
        let settings =
            Settings::read(config.as_deref(), Told { state_dir, database, ..Told::default() })?;
        let database = settings.database_url()?;
        (settings.state_dir.clone(), database, Some(settings))
    } else {
        let (state_dir, database) = anyway(question)?;
        (state_dir, database, None)
    };
    if let Some((settings, file)) = nodes.as_ref().and_then(|all| Some((all, all.nodes.as_ref()?)))
    {
        topology(settings, file, report);
    }
    let said = || config.as_deref().is_some_and(|file| config::places(file).state_dir.is_some());
    let named = question.state_dir.is_some() || said();
    Ok(Where { config, state_dir, named, database })
}

/// What is said of state directory and database, on the command line or in a file that is wrong
/// elsewhere.
fn anyway(question: &Question) -> Result<(PathBuf, DatabaseUrl), Failure> {
    let said = question.config.as_deref().map(config::places).unwrap_or_default();
    let state_dir = question.state_dir.clone().or(said.state_dir);
    let state_dir = state_dir.unwrap_or_else(|| PathBuf::from("kilonova-state"));
    let database = match question.database.clone().or(said.database) {
        None => DatabaseUrl::Sqlite(state_dir.join("kilonova.db")),
        Some(url) => url.parse().map_err(|e: kilonova_store::Error| {
            Failure::Refused(format!("the database cannot be found: {e}"))
        })?,
    };
    Ok((state_dir, database))
}

fn topology(settings: &Settings, file: &Path, report: &mut Report) {
    if let Err(error) = Topology::read_with(file, &settings.devices, &settings.sources.cleanup) {
        let remedy = "mend the topology; kilonova serve does not start with it";
        report.find(AREA, Level::Error, error.to_string(), remedy);
    }
}
