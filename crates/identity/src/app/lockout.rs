//! Locking an account after too many failed logins (`[security_compliance] lockout_*`).

use std::time::Duration;

use jiff::Timestamp;
use kilonova_store::Tx;
use kilonova_wire::time;
use serde_json::Value;

use crate::db::lockouts;
use crate::db::users::User;
use crate::{Error, Identity};

/// Keystone's user option that exempts a user from lockout.
const IGNORED_FOR: &str = "ignore_lockout_failure_attempts";

/// The lockout policy.
#[derive(Debug, Clone, Copy)]
pub struct Lockout {
    /// Consecutive failures that lock an account.
    pub attempts: u32,
    /// Duration of the lock after the last failure.
    pub duration: Duration,
}

impl Lockout {
    /// The failures since the last successful login, and whether the account is locked.
    pub(crate) fn state(self, tx: &mut Tx<'_>, user: &str) -> Result<(i64, bool), Error> {
        let (failures, last) = lockouts::of_user(tx, user)?;
        Ok((failures, failures >= i64::from(self.attempts) && last >= self.expired_before()))
    }

    /// Counts a failure, unless the user was deleted meanwhile.
    pub(crate) fn record_failure(self, tx: &mut Tx<'_>, user: &str) -> Result<(), Error> {
        if crate::db::users::by_id(tx, user)?.is_none() {
            return Ok(());
        }
        let attempts = i64::from(self.attempts);
        Ok(lockouts::record_failure(tx, user, time::now(), attempts, self.expired_before())?)
    }

    /// Resets the count after a successful login.
    pub(crate) fn clear(self, tx: &mut Tx<'_>, user: &str) -> Result<(), Error> {
        Ok(lockouts::clear(tx, user)?)
    }

    /// Locks whose last failure is older than this have expired.
    fn expired_before(self) -> Timestamp {
        time::before(time::now(), time::signed(self.duration))
    }
}

impl Identity {
    /// The lockout policy that applies to a user.
    pub(crate) fn lockout_of(&self, user: &User) -> Option<Lockout> {
        let ignored = user.options.get(IGNORED_FOR) == Some(&Value::Bool(true));
        self.inner.lockout.filter(|_| !ignored)
    }
}
