//! Limits on concurrent transfers, in total and per project or host.
//!
//! A transfer holds a connection, an open file and memory until its client has finished. The limits
//! protect this process; they are not a project quota.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;

/// Limits on concurrent transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferLimit {
    /// Maximum for all projects or hosts together.
    pub total: usize,
    /// Maximum for one project or host.
    pub each: usize,
}

/// Counts transfers of one kind.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The kind in the plural, for messages.
    kind: &'static str,
    most: TransferLimit,
    transfers: Mutex<Transfers>,
}

#[derive(Debug, Default)]
struct Transfers {
    total: usize,
    each: HashMap<String, usize>,
}

/// The right to one transfer. When it is dropped, the gate no longer counts the transfer.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    party: String,
}

impl Gate {
    pub(crate) fn new(kind: &'static str, most: TransferLimit) -> Arc<Self> {
        Arc::new(Self { kind, most, transfers: Mutex::default() })
    }

    /// Admits a transfer of a project or host.
    pub(crate) fn enter(self: &Arc<Self>, party: &str) -> Result<Pass, Error> {
        let mut open = self.transfers();
        if open.total >= self.most.total {
            return Err(Error::Busy(format!(
                "The image service has {} concurrent {}, the maximum. Try again later.",
                open.total, self.kind
            )));
        }
        let own = open.each.get(party).copied().unwrap_or_default();
        if own >= self.most.each {
            return Err(Error::Busy(format!(
                "The maximum of {own} {} of {} is reached. Try again when one has ended.",
                self.kind,
                if party.is_empty() { "this caller" } else { party }
            )));
        }
        open.total += 1;
        open.each.insert(party.to_owned(), own + 1);
        Ok(Pass { gate: Arc::clone(self), party: party.to_owned() })
    }

    fn transfers(&self) -> MutexGuard<'_, Transfers> {
        self.transfers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut open = self.gate.transfers();
        open.total = open.total.saturating_sub(1);
        match open.each.get_mut(&self.party) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(open.each.remove(&self.party)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_limited_per_party_and_in_total() {
        let gate = Gate::new("uploads", TransferLimit { total: 3, each: 2 });
        let red = (gate.enter("red").unwrap(), gate.enter("red").unwrap());
        assert!(gate.enter("red").unwrap_err().to_string().contains("2 uploads of red"));
        let blue = gate.enter("blue").unwrap();
        assert!(gate.enter("green").unwrap_err().to_string().contains("3 concurrent uploads"));
        drop(red);
        let green = (gate.enter("green").unwrap(), gate.enter("green").unwrap());
        drop((blue, green));
        let open = gate.transfers();
        assert_eq!((open.total, open.each.len()), (0, 0));
    }
}
