//! `join`: from a token to a host that the control plane knows by its certificate.

use kilonova_node_link::Identity;
use kilonova_pki::Token;
use kilonova_program::Failure;
use kilonova_program::state::StateDir;

use crate::check::{self, Report};
use crate::settings::Settings;
use crate::{cli, facts, pki_dir};

/// Joins, and says what the host still lacks.
///
/// # Errors
/// When it is not let in, or cannot keep what it is given.
pub async fn join(settings: &Settings, url: &str, token: &str) -> Result<Report, Failure> {
    let token: Token =
        token.parse().map_err(|e: kilonova_pki::Error| Failure::Refused(e.to_string()))?;
    let own = || kilonova_program::host_name().to_ascii_lowercase();
    let host = settings.host.clone().unwrap_or_else(own);
    let address = settings.my_ip.or_else(|| facts::address_towards(url));
    // A running agent owns the folder, and takes up what is put there by itself.
    let owned = StateDir::check_free(&settings.state_dir).is_err();
    let identity = Identity::at(&settings.state_dir);
    let known = identity
        .join(url, &token, &host, address.into_iter().collect())
        .await
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let until = known.said().map_err(|error| Failure::Failed(error.to_string()))?.not_after;
    let days = (until - check::now()) / (24 * 3600 * 1_000_000);
    let next = if owned {
        "The agent that runs takes it up within a minute."
    } else {
        "Start the agent: systemctl enable --now kilonova-agent"
    };
    cli::say(&format!(
        "This host is {host} of the cloud at {url} now; its certificate is good for {days} days and is \
         renewed by itself.\n{next}\n\n"
    ));
    if let Some(folder) = &settings.pki_dir {
        pki_dir::write(folder, &known).map_err(|why| Failure::failed("[node] pki_dir", why))?;
    }
    Ok(check::check(settings).await)
}
