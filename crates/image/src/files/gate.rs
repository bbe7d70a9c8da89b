//! How many transfers may go on at once: in total, and for each project or host.
//!
//! A transfer holds a connection, an open file and some memory for as long as its client likes. The
//! limits are this process's: they guard its memory and files, not a quota of a project.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;

/// Transfers at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// Of everyone.
    pub total: usize,
    /// Of one project or host.
    pub each: usize,
}

/// Counts transfers of one kind.
#[derive(Debug)]
pub(crate) struct Gate {
    /// In the plural, for messages.
    kind: &'static str,
    most: Most,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    each: HashMap<String, usize>,
}

/// A transfer that may go on until this is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    who: String,
}

impl Gate {
    pub(crate) fn new(kind: &'static str, most: Most) -> Arc<Self> {
        Arc::new(Self { kind, most, open: Mutex::default() })
    }

    /// Lets a transfer of `who` begin.
    pub(crate) fn enter(self: &Arc<Self>, who: &str) -> Result<Pass, Error> {
        let mut open = self.open();
        if open.total >= self.most.total {
            return Err(Error::Busy(format!(
                "The image service has {} {} at once and takes no more. Try again later.",
                open.total, self.kind
            )));
        }
        let own = open.each.get(who).copied().unwrap_or_default();
        if own >= self.most.each {
            return Err(Error::Busy(format!(
                "{own} {} of {} go on at once, and it may have no more. Try again when one has ended.",
                self.kind,
                if who.is_empty() { "this caller" } else { who }
            )));
        }
        open.total += 1;
        open.each.insert(who.to_owned(), own + 1);
        Ok(Pass { gate: Arc::clone(self), who: who.to_owned() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut open = self.gate.open();
        open.total = open.total.saturating_sub(1);
        match open.each.get_mut(&self.who) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(open.each.remove(&self.who)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_share_and_all_together_theirs() {
        let gate = Gate::new("uploads", Most { total: 3, each: 2 });
        let red = (gate.enter("red").unwrap(), gate.enter("red").unwrap());
        assert!(gate.enter("red").unwrap_err().to_string().contains("2 uploads of red"));
        let blue = gate.enter("blue").unwrap();
        assert!(gate.enter("green").unwrap_err().to_string().contains("3 uploads at once"));
        drop(red);
        let green = (gate.enter("green").unwrap(), gate.enter("green").unwrap());
        drop((blue, green));
        let open = gate.open();
        assert_eq!((open.total, open.each.len()), (0, 0));
    }
}
