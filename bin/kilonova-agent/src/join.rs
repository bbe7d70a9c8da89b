//! `join`: enrolls this host with a join token.

use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_node_link::Identity;
use kilonova_pki::Token;
use kilonova_program::Failure;
use kilonova_program::state::StateDir;

use crate::check::{self, Report};
use crate::settings::Settings;
use crate::{facts, pki_dir};

/// Joins the cloud. Returns a text about that for the user, and the host's remaining findings.
///
/// # Errors
/// If the controller refuses, or the identity cannot be written.
pub async fn join(
    settings: &Settings,
    url: &str,
    token: &str,
) -> Result<(String, Report), Failure> {
    let token: Token =
        token.parse().map_err(|e: kilonova_pki::Error| Failure::Refused(e.to_string()))?;
    let own = || HostName::verbatim(kilonova_program::host_name().to_ascii_lowercase());
    let host = settings.host.clone().unwrap_or_else(own);
    let address = settings.my_ip.or_else(|| facts::address_towards(url));
    // A running agent owns the directory, and picks up a new identity automatically.
    let owned = StateDir::check_free(&settings.state_dir).is_err();
    let identity = Identity::at(&settings.state_dir);
    let known = identity
        .join(url, &token, &host, address.into_iter().collect())
        .await
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let until =
        known.parsed_certificate().map_err(|error| Failure::Failed(error.to_string()))?.not_after;
    let days = until.duration_since(Timestamp::now()).as_hours() / 24;
    let next = if owned {
        "The running agent uses it within a minute."
    } else {
        "Start the agent: systemctl enable --now kilonova-agent"
    };
    if let Some(folder) = &settings.pki_dir {
        pki_dir::write(folder, &known).map_err(|why| {
            Failure::failed(
                &format!("this host is now {host} of the cloud, but [node] pki_dir"),
                why,
            )
        })?;
    }
    let joined = format!(
        "This host is now {host} of the cloud at {url}; its certificate is valid for {days} days \
         and is renewed automatically.\n{next}\n\n"
    );
    Ok((joined, check::check(settings).await))
}
