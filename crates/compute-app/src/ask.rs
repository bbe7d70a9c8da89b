//! Asks a host about a guest and waits for the answer.

use std::time::Duration;

use kilonova_compute_db::questions;
use kilonova_compute_db::servers::Server;
use kilonova_node_api::{Question, ReplyBody, Topic};
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use kilonova_wire::time;
use uuid::Uuid;

use crate::Compute;

/// Timeout for a host's answer.
const TIMEOUT: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Asks the server's host and returns its answer.
///
/// # Errors
/// 409 for a server without a host; 503 if the host does not answer.
pub async fn ask(compute: &Compute, server: &Server, topic: Topic) -> Result<ReplyBody, Refusal> {
    let Some(host) = server.host.clone() else {
        return Err(crate::states::not_ready(server).into());
    };
    let silent = Refusal::new(
        Kind::Unavailable,
        format!("Host {host} does not answer. Try again when it is up."),
    );
    if !compute.host_is_up(&host) {
        return Err(silent);
    }
    let id = Uuid::new_v4();
    let question = Question { id, server: server.id, topic };
    let asked = compute.clone();
    compute
        .store
        .write(move |tx| questions::ask(tx, &asked, &host, &question, time::now()))
        .await?;
    let reply = tokio::time::timeout(TIMEOUT, answer(compute, id)).await;
    compute.store.write(move |tx| questions::forget(tx, id)).await?;
    reply.unwrap_or(Err(silent))
}

async fn answer(compute: &Compute, id: Uuid) -> Result<ReplyBody, Refusal> {
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(reply) = compute.store.read(move |tx| questions::answer(tx, id)).await? {
            return Ok(reply);
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}
