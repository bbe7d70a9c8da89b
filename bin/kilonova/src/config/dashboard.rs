//! `[dashboard]`: the pages for browsers.
//!
//! They call the services of this process with tokens of our own identity service, so the services that most pages need
//! must run here. Device profiles also need the accelerator service, and the queries of Explain need Placement.

use super::{AuthStrategy, File, ServiceName, Settings};
use crate::failure::Failure;

/// The known options.
pub(super) const KNOWN: [(&str, &str); 1] = [("dashboard", "enabled")];

/// The services without which there is no dashboard.
const NEEDED: [ServiceName; 4] =
    [ServiceName::Identity, ServiceName::Compute, ServiceName::Image, ServiceName::Network];

/// True if the dashboard is on: by the option, or by default where every service runs in this process.
///
/// # Errors
/// If the option is on, and one of the services in [`NEEDED`] does not run here.
pub(super) fn read(file: &File, settings: &Settings) -> Result<bool, Failure> {
    let (group, option) = KNOWN[0];
    match file.parse::<bool>(group, option, "true or false")? {
        Some(false) => Ok(false),
        None => Ok(settings.runs_everything()),
        Some(true) => {
            let runs = |service: &ServiceName| {
                settings.auth == AuthStrategy::Keystone && settings.runs(*service)
            };
            if let Some(service) = NEEDED.into_iter().find(|service| !runs(service)) {
                let why = format!(
                    "the dashboard needs the services identity, compute, image and network in this process, and \
                     {} does not run here; a cloud with a Keystone, Glance or Neutron of its own has its own \
                     dashboard",
                    service.as_str()
                );
                return Err(file.wrong(group, option, &why));
            }
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CommandLine;

    fn dashboard(text: &str) -> Result<bool, Failure> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("k.conf");
        std::fs::write(&path, text).expect("the file is written");
        Settings::read(Some(&path), CommandLine::default()).map(|settings| settings.dashboard)
    }

    #[test]
    fn it_is_on_where_everything_runs_here() {
        const SOME: &str = "[api]\nservices = identity, compute, image, network\n";
        const PLACEMENT: &str = "[api]\nservices = identity, placement\n";
        for (text, expected) in [
            ("", true),
            ("[dashboard]\nenabled = false\n", false),
            (SOME, false),
            (&format!("{SOME}[dashboard]\nenabled = True\n"), true),
            (PLACEMENT, false),
            ("[api]\nauth_strategy = noauth2\n", false),
        ] {
            assert_eq!(dashboard(text).expect(text), expected, "{text}");
        }
        for (text, missing) in [
            (&*format!("{PLACEMENT}[dashboard]\nenabled = true\n"), "compute does not run here"),
            (
                "[api]\nauth_strategy = noauth2\n[dashboard]\nenabled = true\n",
                "identity does not run here",
            ),
        ] {
            let why = dashboard(text).expect_err(text).to_string();
            assert!(why.contains("[dashboard] enabled") && why.contains(missing), "{why}");
        }
    }
}
