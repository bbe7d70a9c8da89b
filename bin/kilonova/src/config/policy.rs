//! `[oslo_policy]`: which of upstream's defaults count, and the operator's own rules over them.

use std::path::PathBuf;
use std::sync::Arc;

use kilonova_policy::{Defaults, Override, Policy};

use super::file::File;
use crate::failure::Failure;

const GROUP: &str = "oslo_policy";
/// The file that is read when none is named, if it is there.
const USUAL: &str = "policy.yaml";

/// The policy of the Placement API.
///
/// # Errors
/// A file that cannot be read, or that holds what cannot work, with its name and line.
pub(super) fn read(file: &File) -> Result<Arc<Policy>, Failure> {
    let flag = |option: &str, default: bool| -> Result<bool, Failure> {
        Ok(file.parse(GROUP, option, "true or false")?.unwrap_or(default))
    };
    let usual = Defaults::default();
    let defaults = Defaults {
        new_only: flag("enforce_new_defaults", usual.new_only)?,
        scope: flag("enforce_scope", usual.scope)?,
    };
    let (path, own) = match rules(file)? {
        None => (PathBuf::new(), Vec::new()),
        Some(found) => found,
    };
    let policy = kilonova_placement::policy(&own, defaults)
        .map_err(|error| Failure::Refused(format!("{}: {error}", path.display())))?;
    Ok(Arc::new(policy))
}

/// The rules of the file that is named, or of the usual one if it is there.
fn rules(file: &File) -> Result<Option<(PathBuf, Vec<Override>)>, Failure> {
    let named = file.path(GROUP, "policy_file");
    let Some(folder) = file.folder() else { return Ok(None) };
    let path = folder.join(named.as_deref().unwrap_or(USUAL.as_ref()));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => {
            let why = format!("cannot read {}: {error}", path.display());
            return Err(file.wrong(GROUP, "policy_file", &why));
        }
    };
    let own = kilonova_policy::read(&text)
        .map_err(|error| Failure::Refused(format!("{}: {error}", path.display())))?;
    Ok(Some((path, own)))
}
