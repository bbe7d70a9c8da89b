//! Locking an account after too many failed logins (`[security_compliance] lockout_*`).

use std::time::Duration;

use kilonova_store::Tx;
use kilonova_wire::time::now_micros;
use serde_json::Value;

use crate::db::lockouts;
use crate::db::users::User;
use crate::{Error, Identity};

/// Keystone's option of a user who is never locked out.
const IGNORED_FOR: &str = "ignore_lockout_failure_attempts";

/// When accounts are locked, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Lockout {
    /// Failures in a row after which an account is locked.
    pub attempts: u32,
    /// How long it stays locked after the last of them.
    pub duration: Duration,
}

impl Lockout {
    /// Failures since the last good login, and whether the account is locked because of them.
    pub(crate) fn state(self, tx: &mut Tx<'_>, user: &str) -> Result<(i64, bool), Error> {
        let (failures, last) = lockouts::of_user(tx, user)?;
        Ok((failures, failures >= i64::from(self.attempts) && last >= self.over_before()))
    }

    /// Counts a failure. A user who was deleted meanwhile has none.
    pub(crate) fn failed(self, tx: &mut Tx<'_>, user: &str) -> Result<(), Error> {
        if crate::db::users::by_id(tx, user)?.is_none() {
            return Ok(());
        }
        let most = i64::from(self.attempts);
        Ok(lockouts::failed(tx, user, now_micros(), most, self.over_before())?)
    }

    /// A good login ends the count.
    pub(crate) fn clear(self, tx: &mut Tx<'_>, user: &str) -> Result<(), Error> {
        Ok(lockouts::clear(tx, user)?)
    }

    /// Locks whose last failure was before this time are over.
    fn over_before(self) -> i64 {
        let micros = i64::try_from(self.duration.as_micros()).unwrap_or(i64::MAX);
        now_micros().saturating_sub(micros)
    }
}

impl Identity {
    /// The rule for a user, if there is one.
    pub(crate) fn lockout_of(&self, user: &User) -> Option<Lockout> {
        let ignored = user.options.get(IGNORED_FOR) == Some(&Value::Bool(true));
        self.inner.lockout.filter(|_| !ignored)
    }
}
