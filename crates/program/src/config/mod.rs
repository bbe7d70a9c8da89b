//! A configuration file in oslo's INI form, and the groups that several programs read: those that describe
//! a host's devices for guests, and the operator's data for guests.

pub mod devices;
mod file;
mod notes;
pub mod sources;
pub mod upstream;
pub mod vendordata;

use std::path::Path;

use kilonova_devices::{Discovery, MdevOptions};

use crate::Failure;
pub use file::File;
pub use notes::{Entry, Note, Outcome, log};

/// The options of a program: group and option.
pub type Options = [(&'static str, &'static str)];

fn is_known_group(known: &[&Options], group: &str) -> bool {
    let listed = |options: &&Options| options.iter().any(|(name, _)| *name == group);
    known.iter().any(listed)
        || sources::KNOWN.iter().any(|(name, _)| *name == group)
        || devices::is_known_group(group)
}

/// True if the option is in `known` or describes devices.
pub fn is_known(known: &[&Options], group: &str, option: &str) -> bool {
    known.iter().any(|options| listed(options, group, option))
        || listed(&sources::KNOWN, group, option)
        || devices::is_known(group, option)
}

/// The device options of a configuration file; `None` if it has none.
///
/// # Errors
/// A message with file, line, group and option.
pub fn devices_of(
    path: &Path,
    known: &[&Options],
) -> Result<Option<(MdevOptions, Discovery)>, Failure> {
    let file = File::read(path, known)?;
    let (options, sources) = (devices::options(&file)?, sources::read(&file)?);
    let nothing = options == MdevOptions::default() && sources == Discovery::default();
    Ok((!nothing).then_some((options, sources)))
}

fn listed(options: &Options, group: &str, option: &str) -> bool {
    options.iter().any(|(g, o)| *g == group && *o == option)
}
