//! The control plane's side of the node documents: what a node may ask, in this process.
//!
//! Every call names the host's epoch; a call of an older session is refused, so a node that was
//! replaced cannot act on devices that are no longer its own.

mod desired;
mod observed;
mod register;

use kilonova_node_api::{Answer, Batch, ControlPlane, Observation, Refusal, Registration, Session};

use crate::{Compute, Error};

/// Nodes in this process call this.
#[derive(Clone)]
pub struct Link(pub Compute);

impl ControlPlane for Link {
    fn register(&self, registration: Registration) -> Answer<'_, Session> {
        Box::pin(register::register(&self.0, registration))
    }

    fn desired<'a>(&'a self, host: &'a str, epoch: i64, since: i64) -> Answer<'a, Batch> {
        Box::pin(desired::desired(&self.0, host, epoch, since))
    }

    fn observed<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> Answer<'a, ()> {
        Box::pin(observed::observed(&self.0, host, epoch, observations))
    }
}

fn unavailable(error: Error) -> Refusal {
    match error {
        Error::Fenced => Refusal::Fenced,
        Error::Refused(fault) => Refusal::Rejected(fault.message),
        other => Refusal::Unavailable(other.to_string()),
    }
}
