//! Handles a failed attempt to match Neutron to the goal: fails the document that waits for it, or schedules a retry.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::documents;
use kilonova_compute_db::external_ports;
use kilonova_ids::{PortId, ServerId};
use kilonova_node_api::{Observation, Outcome};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind as RefusalKind;
use kilonova_wire::{IntoRefusal, Refusal, time};

use super::CloudNeutron;
use super::journal;
use super::settle::{Attempt, Taken, settle};
use crate::ports::neutron::Failure;
use crate::{Compute, Error, flows};

/// Maximum pause between two attempts.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// The head start of this process, which knows the user's token. It is shorter than [`OWN_TIME`](super::OWN_TIME), so
/// that this process can lease the server right after the pause.
const HEAD_START: SignedDuration = SignedDuration::from_secs(5);
/// How many times a request checks for the port that another worker creates.
const ATTEMPTS: usize = 300;
/// How many times a request checks whether a worker has read the changed ports.
const REFRESH_ATTEMPTS: usize = 50;
/// The pause between two of these checks.
const SHORT: Duration = Duration::from_millis(100);
/// The failed step that is reported to the flows.
const STEP: &str = "ports";

/// Why an attempt failed.
#[derive(Debug)]
pub struct Failed {
    why: String,
    kind: Kind,
    refusal: Option<Refusal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Another host may work.
    Host,
    /// No host can connect the port.
    Request,
    /// The same attempt may succeed later.
    Neutron,
}

impl Failed {
    pub(super) fn of(failure: Failure) -> Self {
        match failure {
            Failure::Host(why) => Self { why, kind: Kind::Host, refusal: None },
            Failure::Request(refusal) => {
                Self { why: refusal.message.clone(), kind: Kind::Request, refusal: Some(refusal) }
            }
            Failure::Neutron(error) => Self {
                why: error.to_string(),
                kind: Kind::Neutron,
                refusal: Some(error.into_refusal()),
            },
        }
    }

    pub(super) fn slow() -> Self {
        Self { why: "Neutron is too slow".to_owned(), kind: Kind::Neutron, refusal: None }
    }

    /// True if Neutron answered, so that the same attempt would fail again.
    pub(super) fn is_answer(&self) -> bool {
        self.kind != Kind::Neutron
    }

    /// The answer to a request that waits for the attempt.
    fn refusal(&self) -> Refusal {
        match (&self.refusal, self.kind) {
            (Some(refusal), _) => refusal.clone(),
            (None, Kind::Host | Kind::Request) => Refusal::bad_request(self.why.clone()),
            (None, Kind::Neutron) => Refusal::new(
                RefusalKind::Unavailable,
                "The network service is temporarily unavailable. Try again.",
            )
            .with_retry_after(1),
        }
    }

    /// Stores the failure. Returns the pause before the next attempt, if this process makes it.
    pub(super) fn store(
        &self,
        tx: &mut Tx<'_>,
        compute: &Compute,
        cloud: &CloudNeutron,
        taken: &Taken,
        now: Timestamp,
    ) -> Result<Option<SignedDuration>, Error> {
        let id = taken.row.id;
        let mut waiting = documents::held(tx, id)?;
        waiting.retain(|(host, _)| {
            [&taken.row.host, &taken.row.next_host]
                .into_iter()
                .any(|one| one.as_ref() == Some(host))
        });
        let is_over = match self.kind {
            Kind::Host | Kind::Request => true,
            Kind::Neutron => now.duration_since(taken.row.since) >= cloud.options.timeout,
        };
        if is_over && let Some((host, document)) = waiting.pop() {
            tracing::warn!(
                server = %id, %host, why = self.why,
                "the ports of a server cannot be bound: see the log of Neutron and `openstack network agent list`"
            );
            // The flow that handles the failure sets the next goal.
            external_ports::end_lease(tx, id, None)?;
            let shown = match self.kind {
                Kind::Host | Kind::Request => self.why.clone(),
                // Only the log contains the cause.
                Kind::Neutron => "The network service did not answer in time.".to_owned(),
            };
            if self.kind != Kind::Host && flows::abort_build(tx, compute, id, &shown, now)? {
                return Ok(None);
            }
            let outcome = Outcome::Failed { step: STEP.to_owned(), message: shown };
            let observation = Observation::new(id, document.generation, outcome);
            flows::observe(tx, compute, &host, &observation, now)?;
            return keep_trying(tx, taken, now);
        }
        if self.kind != Kind::Neutron {
            self.give_up_new_ports(tx, taken)?;
        }
        let pause = pause(taken.row.attempts);
        tracing::warn!(
            server = %id, why = self.why,
            "Neutron does not have the ports of a server in the desired state; retrying"
        );
        external_ports::end_lease(tx, id, Some(time::after(time::after(now, pause), HEAD_START)))?;
        Ok(Some(pause))
    }

    /// Gives up the ports that were being attached to an existing server.
    fn give_up_new_ports(&self, tx: &mut Tx<'_>, taken: &Taken) -> Result<(), Error> {
        let new = taken.ports.iter().filter(|port| port.view.is_none() && !port.is_detaching);
        for port in new {
            external_ports::drop_place(tx, taken.row.id, port.ordinal)?;
        }
        Ok(())
    }
}

impl Compute {
    /// Creates the port for a new connection of an existing server, and waits for it. If that fails, the connection is
    /// removed.
    ///
    /// # Errors
    /// Nova's messages; 503 if Neutron does not answer.
    pub async fn finish_attach(&self, server: ServerId, ordinal: i64) -> Result<PortId, Error> {
        for _ in 0..ATTEMPTS {
            let attempt = settle(self, server).await?;
            let read = move |tx: &mut Tx<'_>| attached(tx, server, ordinal);
            if let Some(port) = self.store.read(read).await? {
                return Ok(port);
            }
            match attempt {
                Attempt::Failed(failed) => {
                    self.give_up_port(server, ordinal).await?;
                    return Err(failed.refusal().into());
                }
                // Another worker has leased the server, or the attempt was for an older goal.
                Attempt::None | Attempt::Made => tokio::time::sleep(SHORT).await,
            }
        }
        self.give_up_port(server, ordinal).await?;
        Err(Failed::slow().refusal().into())
    }

    /// Waits at most a few seconds until a worker has read a server's ports after a change in Neutron, because a client
    /// expects to see its change once it has received the answer. This function makes no call to Neutron: a client that
    /// disconnects would cancel the call, and the server would stay leased.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn refresh_ports(&self, server: ServerId) -> Result<(), Error> {
        for _ in 0..REFRESH_ATTEMPTS {
            let row = self.store.read(move |tx| external_ports::find(tx, server)).await?;
            if row.is_none_or(|row| row.due_at.is_none()) {
                return Ok(());
            }
            tokio::time::sleep(SHORT).await;
        }
        Ok(())
    }

    async fn give_up_port(&self, server: ServerId, ordinal: i64) -> Result<(), Error> {
        let queue = self.neutron.as_ref().map(|cloud| cloud.queue.clone());
        let give_up = move |tx: &mut Tx<'_>| {
            external_ports::drop_place(tx, server, ordinal)?;
            let now = time::now();
            external_ports::change(tx, server, now, now)?;
            if let Some(queue) = &queue {
                queue.push_on_commit(tx, server);
            }
            Ok::<_, Error>(())
        };
        self.store.write(give_up).await
    }
}

/// Schedules another attempt if a document is still held back. There may be no flow left to replace that document, so
/// the host must receive it once Neutron has recovered. Returns the pause before the attempt.
fn keep_trying(
    tx: &mut Tx<'_>,
    taken: &Taken,
    now: Timestamp,
) -> Result<Option<SignedDuration>, Error> {
    let id = taken.row.id;
    let is_idle = external_ports::find(tx, id)?.is_some_and(|row| row.due_at.is_none());
    if !is_idle || documents::held(tx, id)?.is_empty() {
        return Ok(None);
    }
    let due = time::after(time::after(now, LONGEST_PAUSE), HEAD_START);
    external_ports::refresh(tx, id, due)?;
    Ok(Some(LONGEST_PAUSE))
}

/// The port of the server's connection with this ordinal; `None` if it is not attached yet.
fn attached(tx: &mut Tx<'_>, server: ServerId, ordinal: i64) -> Result<Option<PortId>, Error> {
    let rows = journal::ports(tx, server)?;
    let row = rows.into_iter().find(|row| row.ordinal == ordinal && !row.is_detaching);
    Ok(row.filter(|row| row.view.is_some()).and_then(|row| row.port))
}

/// The pause before the next attempt: half a second, doubled after each attempt up to [`LONGEST_PAUSE`].
fn pause(attempts: i64) -> SignedDuration {
    let half_seconds = 1_i64 << (attempts.clamp(1, 10) - 1);
    SignedDuration::from_millis(half_seconds * 500).min(LONGEST_PAUSE)
}
