//! Consoles: a user gets a URL with a token, and a client that connects with the token is connected to the guest.
//!
//! ```text
//! browser ──websocket──► controller ◄──connection of the host── agent ──► guest
//!                            └── request for a console, in the host's poll ──►┘
//! ```
//!
//! The client waits at one controller, so the request names the controller that the host must dial. The database
//! contains only tokens and requests, and a request exists for only a few seconds. This module must never depend on the
//! transport of either side.

mod end;
mod expected;
mod options;
mod token;

use std::time::Duration;

use kilonova_compute_db::consoles as rows;
use kilonova_compute_db::servers::{self, TaskState};
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{ConsoleKind, ConsoleProblem, ConsoleRefusal, ConsoleRequest};
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Refusal, time};
use uuid::Uuid;

pub use end::End;
pub use expected::{Answer, ConsolePermit, Consoles, Expected, Stream};
pub use options::ConsoleOptions;
pub use rows::ConsoleToken;
pub use token::{Protocol, create, kind_of, valid};

use crate::{Compute, Error};

/// The maximum time that a client waits for the host.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An open console.
pub struct Session {
    /// The stream of the console's bytes.
    pub stream: Box<dyn Stream>,
    /// The session's place among the open consoles.
    pub slot: ConsolePermit,
}

/// Connects a client to the guest of its token.
///
/// # Errors
/// The reason why there is no connection.
pub async fn open(compute: &Compute, token: &ConsoleToken) -> Result<Session, End> {
    let kind = kind_of(token).ok_or(End::InvalidToken)?;
    let options = &compute.options.consoles;
    let slot = compute.consoles.take(&token.user, options).ok_or(End::TooMany)?;
    match ask(compute, &token.host, token.server, kind, true).await {
        Ok(Answer::Connected(stream)) => Ok(Session { stream, slot }),
        Ok(Answer::Refused(ConsoleRefusal { problem, why })) => Err(match problem {
            ConsoleProblem::ShutOff => End::ShutOff,
            ConsoleProblem::NoGuest | ConsoleProblem::NoDevice | ConsoleProblem::Failed => {
                tracing::warn!(server = %token.server, host = %token.host, %why, "the host refused a console");
                End::Refused(why)
            }
        }),
        Ok(Answer::Available) => Err(End::NoAnswer(token.host.clone())),
        Err(NoConsole::Silent) => Err(End::NoAnswer(token.host.clone())),
        Err(NoConsole::Store(error)) => {
            tracing::error!(server = %token.server, %error, "cannot request a console from the host");
            Err(End::Unavailable)
        }
    }
}

/// The reason why a host closed a console's connection.
pub async fn closed_by_host(compute: &Compute, token: &ConsoleToken) -> End {
    let server = token.server;
    let read = compute.store.read(move |tx| servers::find(tx, server).map_err(Error::from)).await;
    match read {
        Ok(None) => End::Deleted,
        Ok(Some(server))
            if server.host.as_ref() != Some(&token.host)
                || server.task_state == Some(TaskState::Migrating) =>
        {
            End::Moved
        }
        Ok(Some(_)) => End::HostClosed,
        Err(error) => {
            tracing::warn!(%server, %error, "cannot determine why a console ended");
            End::HostClosed
        }
    }
}

/// Why a host did not answer.
enum NoConsole {
    /// It is down, or did not answer in time.
    Silent,
    /// The database failed.
    Store(Error),
}

/// Asks a host for a console of a guest.
async fn ask(
    compute: &Compute,
    host: &HostName,
    server: ServerId,
    kind: ConsoleKind,
    connect: bool,
) -> Result<Answer, NoConsole> {
    if !compute.host_is_up(host) {
        return Err(NoConsole::Silent);
    }
    let id = Uuid::new_v4();
    let expected = compute.consoles.expect(id, host);
    let controller = compute.consoles.urls();
    let request = ConsoleRequest { id, server, kind, connect, controller };
    let (waker, on) = (compute.clone(), host.clone());
    let asked = compute
        .store
        .write(move |tx| rows::ask(tx, &waker, &on, &request, time::now()).map_err(Error::from));
    asked.await.map_err(NoConsole::Store)?;
    let answer = tokio::time::timeout(TIMEOUT, expected.answered()).await;
    let forgotten = compute.store.write(move |tx| rows::forget(tx, id).map_err(Error::from)).await;
    if let Err(error) = forgotten {
        tracing::debug!(%error, "cannot delete an answered console request; it will expire");
    }
    match answer {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) | Err(_) => {
            tracing::warn!(
                %host, %server, controller = ?compute.consoles.urls(),
                "a host did not answer a console request; check that its agent has this version \
                 and can reach this controller at its own address"
            );
            Err(NoConsole::Silent)
        }
    }
}

/// 503 for a host that does not answer.
fn silent(host: &HostName) -> Refusal {
    Refusal::new(
        Kind::Unavailable,
        format!("Host {host} does not answer. Try again when it is up."),
    )
}
