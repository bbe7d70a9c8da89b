//! Tokens for consoles, and the URLs that carry them.

use kilonova_compute_db::consoles::{self as rows, ConsoleToken};
use kilonova_compute_db::servers::{Server, TaskState, VmState};
use kilonova_node_api::{ConsoleKind, ConsoleProblem};
use kilonova_wire::{Context, Refusal, time};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Answer, ConsoleOptions, NoConsole, ask, silent};
use crate::{Compute, Error, states};

/// Nova's console type for a display in a browser.
const NOVNC: &str = "novnc";
/// Nova's console type for a serial port.
const SERIAL: &str = "serial";
/// The path of the page that shows a display, below the root of the API.
const PAGE: &str = "/console/novnc/vnc_auto.html";
/// The path of the websocket for serial ports, below the root of the API.
const SERIAL_PATH: &str = "/console/serial";

/// The console protocols of Nova's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RFB.
    Vnc,
    /// SPICE, which no host here supports.
    Spice,
    /// RDP, which Nova has removed.
    Rdp,
    /// A serial port.
    Serial,
    /// The protocol of VMware.
    Mks,
}

impl Protocol {
    /// The protocol with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "vnc" => Self::Vnc,
            "spice" => Self::Spice,
            "rdp" => Self::Rdp,
            "serial" => Self::Serial,
            "mks" => Self::Mks,
            _ => return None,
        })
    }

    /// Nova's name for the operation, used in refusals.
    fn operation(self) -> &'static str {
        match self {
            Self::Vnc => "get_vnc_console",
            Self::Spice => "get_spice_console",
            Self::Rdp => "get_rdp_console",
            Self::Serial => "get_serial_console",
            Self::Mks => "get_mks_console",
        }
    }

    /// The kind of console for this protocol and console type.
    fn console(self, options: &ConsoleOptions, console_type: &str) -> Result<ConsoleKind, Refusal> {
        let (enabled, expected, kind) = match self {
            Self::Vnc => (options.vnc, NOVNC, ConsoleKind::Vnc),
            Self::Serial => (options.serial, SERIAL, ConsoleKind::Serial),
            Self::Spice | Self::Rdp | Self::Mks => return Err(unavailable(console_type)),
        };
        if !enabled {
            return Err(unavailable(console_type));
        }
        if console_type != expected {
            let text = format!("Invalid console type {}", console_type.escape_debug());
            return Err(Refusal::bad_request(text));
        }
        Ok(kind)
    }
}

fn unavailable(console_type: &str) -> Refusal {
    Refusal::bad_request(format!("Unavailable console type {}.", console_type.escape_debug()))
}

/// The kind of console that a token gives access to.
pub fn kind_of(token: &ConsoleToken) -> Option<ConsoleKind> {
    match token.console_type.as_str() {
        NOVNC => Some(ConsoleKind::Vnc),
        SERIAL => Some(ConsoleKind::Serial),
        _ => None,
    }
}

/// Creates a token for a console of a server, and returns the URL that contains it. `root` is the
/// URL at which the user reaches this process.
///
/// # Errors
/// Nova's refusals; 503 if the host does not answer.
pub async fn create(
    compute: &Compute,
    context: &Context,
    server: &Server,
    protocol: Protocol,
    console_type: &str,
    root: &str,
) -> Result<String, Refusal> {
    if protocol == Protocol::Rdp {
        return Err(unavailable("rdp"));
    }
    let host =
        check_state(server, protocol)?.ok_or_else(|| Refusal::from(states::not_ready(server)))?;
    let options = &compute.options.consoles;
    let kind = protocol.console(options, console_type)?;
    match ask(compute, &host, server.id, kind, false).await {
        Ok(Answer::Available | Answer::Connected(_)) => {}
        Ok(Answer::Refused(refusal)) => match refusal.problem {
            ConsoleProblem::NoGuest if server.vm_state == VmState::Building => {
                return Err(states::not_ready(server).into());
            }
            ConsoleProblem::NoGuest => {
                return Err(Refusal::not_found(format!(
                    "Instance {} could not be found.",
                    server.id
                )));
            }
            ConsoleProblem::NoDevice => {
                let mut refused = unavailable(console_type);
                refused.message = format!("{} {}", refused.message, sentence(&refusal.why));
                return Err(refused);
            }
            // As in Nova, a server that is shut off gets a URL; the page connects once the server
            // runs.
            ConsoleProblem::ShutOff => {}
            ConsoleProblem::Failed => {
                return Err(unavailable(console_type).with_internal(refusal.why));
            }
        },
        Err(NoConsole::Silent) => return Err(silent(&host)),
        Err(NoConsole::Store(error)) => return Err(error.into()),
    }
    let base = base(options, kind, root);
    let text = Uuid::new_v4().to_string();
    let token = ConsoleToken {
        server: server.id,
        host,
        console_type: console_type.to_owned(),
        access_url_base: base.clone(),
        user: context.user_id.clone(),
        project: context.project_id.clone(),
        expires: time::after(time::now(), options.token_ttl),
    };
    let (hash, row) = (hash(&text), token.clone());
    let added =
        compute.store.write(move |tx| rows::add_token(tx, &hash, &row).map_err(Error::from));
    added.await?;
    tracing::info!(
        user = %token.user, project = %token.project, server = %token.server, host = %token.host,
        console = console_type, "a user requested a console"
    );
    Ok(url(&base, kind, &text))
}

/// The host of a server that can have a console now; `None` if the server has no host.
fn check_state(
    server: &Server,
    protocol: Protocol,
) -> Result<Option<kilonova_ids::HostName>, Refusal> {
    match server.task_state {
        Some(task @ (TaskState::Deleting | TaskState::Migrating)) => {
            Err(Refusal::conflict(format!(
                "Cannot '{}' instance {} while it is in task_state {}",
                protocol.operation(),
                server.id,
                task.as_str()
            )))
        }
        _ => Ok(server.host.clone()),
    }
}

/// A reason as a sentence.
fn sentence(why: &str) -> String {
    let mut chars = why.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).chain((!why.ends_with('.')).then_some('.')).collect()
}

/// The valid token with this text; `None` if it is unknown, expired, or for a server that has
/// moved.
///
/// # Errors
/// Store errors only.
pub async fn valid(compute: &Compute, text: &str) -> Result<Option<ConsoleToken>, Error> {
    if Uuid::try_parse(text).is_err() {
        return Ok(None);
    }
    let hash = hash(text);
    compute.store.read(move |tx| rows::token(tx, &hash, time::now()).map_err(Error::from)).await
}

fn hash(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The operator's URL for a kind of console, or our own.
fn base(options: &ConsoleOptions, kind: ConsoleKind, root: &str) -> String {
    let (configured, own) = match kind {
        ConsoleKind::Vnc => (&options.vnc_base_url, format!("{root}{PAGE}")),
        // `ws` instead of `http`, `wss` instead of `https`.
        ConsoleKind::Serial => (
            &options.serial_base_url,
            format!("ws{}{SERIAL_PATH}", root.strip_prefix("http").unwrap_or(root)),
        ),
    };
    configured.clone().unwrap_or(own)
}

/// Adds a token to a base URL: noVNC reads it from the query parameter `path`, other clients from
/// `token`.
fn url(base: &str, kind: ConsoleKind, token: &str) -> String {
    let (start, query) =
        base.split_once('?').map_or((base, None), |(start, query)| (start, Some(query)));
    let mut keys: Vec<String> =
        query.into_iter().flat_map(|query| query.split('&')).map(str::to_owned).collect();
    match kind {
        ConsoleKind::Vnc => match keys.iter_mut().find(|key| key.starts_with("path=")) {
            Some(path) => path.push_str(&format!("%3Ftoken%3D{token}")),
            None => keys.push(format!("path=%3Ftoken%3D{token}")),
        },
        ConsoleKind::Serial => keys.push(format!("token={token}")),
    }
    format!("{start}?{}", keys.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_where_each_client_looks_for_it() {
        let vnc = |base| url(base, ConsoleKind::Vnc, "T");
        assert_eq!(
            vnc("http://c:6080/vnc_auto.html"),
            "http://c:6080/vnc_auto.html?path=%3Ftoken%3DT"
        );
        assert_eq!(
            vnc("https://c/vnc_lite.html?scale=1&path=websockify"),
            "https://c/vnc_lite.html?scale=1&path=websockify%3Ftoken%3DT"
        );
        let serial = |base| url(base, ConsoleKind::Serial, "T");
        assert_eq!(serial("ws://c:6083/"), "ws://c:6083/?token=T");
        assert_eq!(serial("ws://c:6083/?a=b"), "ws://c:6083/?a=b&token=T");
    }

    #[test]
    fn without_a_configured_url_it_is_that_of_the_api() {
        let options = ConsoleOptions::default();
        let own = |kind, root| base(&options, kind, root);
        assert_eq!(
            own(ConsoleKind::Vnc, "https://cloud/os"),
            "https://cloud/os/console/novnc/vnc_auto.html"
        );
        assert_eq!(own(ConsoleKind::Serial, "https://cloud"), "wss://cloud/console/serial");
        assert_eq!(own(ConsoleKind::Serial, "http://cloud:1"), "ws://cloud:1/console/serial");
        let options = ConsoleOptions { vnc_base_url: Some("http://p".into()), ..options };
        assert_eq!(base(&options, ConsoleKind::Vnc, "https://cloud"), "http://p");
    }

    #[test]
    fn a_row_has_the_sha256_of_the_token() {
        let hash = hash("abc");
        assert!(hash.starts_with("ba7816bf8f01cfea414140de5dae2223") && hash.len() == 64, "{hash}");
    }
}
