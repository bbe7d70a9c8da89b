//! Whether a guest is as its document wants it, whatever is being done to its server.
//!
//! One that is has let go of everything else: the side of a move on one host that could not be undone
//! at first is released then. One that is not, though nothing is being done, must not look as if it
//! were: the server is in `ERROR`, with the reason. It must never look at hosts that a server has left.

use kilonova_flow::Operation;
use kilonova_node_api::{Domain, Observation, Outcome, Power};
use kilonova_store::Tx;

use crate::app::moves as claims;
use crate::db::moves;
use crate::db::servers::{self, Fault, VmState};
use crate::{Compute, Error};

/// Steps that leave a guest as it is when they fail.
const HARMLESS: &[&str] = &["snapshot", "crash_dump"];

/// What a host says of a guest that should be there.
pub(super) struct Word<'a> {
    pub host: &'a str,
    pub domain: &'a Domain,
    pub observation: &'a Observation,
    pub operation: Option<&'a Operation>,
}

/// Looks at what a host says.
///
/// # Errors
/// The database's.
pub(super) fn look(
    tx: &mut Tx<'_>,
    compute: &Compute,
    word: &Word<'_>,
    now: i64,
) -> Result<(), Error> {
    match &word.observation.outcome {
        Outcome::Running | Outcome::Stopped | Outcome::Paused | Outcome::Suspended
            if word.operation.is_none_or(|open| open.kind != "create") =>
        {
            let held = moves::held_on(tx, word.observation.server, word.host)?;
            if held.is_empty() || !held.iter().all(|held| held.same_host() && !held.open) {
                return Ok(());
            }
            claims::drop_held(tx, compute, word.observation.server, word.host)
        }
        Outcome::Failed { step, message }
            if word.operation.is_none() && !HARMLESS.contains(&step.as_str()) =>
        {
            failed(tx, word, &format!("{}: {step}: {message}", word.host), now)
        }
        _ => Ok(()),
    }
}

/// The guest should run, and cannot be made to.
fn failed(tx: &mut Tx<'_>, word: &Word<'_>, why: &str, now: i64) -> Result<(), Error> {
    let Some(server) = servers::find(tx, word.observation.server)? else { return Ok(()) };
    let runs = matches!(server.vm_state, VmState::Active | VmState::Paused)
        && matches!(word.domain.power, Power::On | Power::Paused);
    if !runs || server.host.as_deref() != Some(word.host) {
        return Ok(());
    }
    tracing::warn!(server = %server.id, "does not run any more: {why}");
    let fault = Fault::new("The host could not keep the guest running.", why, now);
    servers::set_error(tx, server.id, &fault, now)
}
