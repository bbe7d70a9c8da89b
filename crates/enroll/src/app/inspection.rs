//! The state of the authorities and of the hosts' certificates, for an operator. It only reads, and
//! needs no key.

use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_store::Store;

use crate::app::authority::{Certified, certified, in_state, mark, names};
use crate::authorities::is_trusted;
use crate::db::authorities::{self as rows, AuthorityState, KnownAuthority};
use crate::{Authorities, Error};

/// A trusted authority, and the hosts that delay its rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedAuthority {
    /// The authority.
    pub known: KnownAuthority,
    /// The end of its certificate.
    pub not_after: Timestamp,
    /// For a staged authority, the hosts that do not trust it yet; for an outgoing one, those that
    /// still need it.
    pub late: Vec<HostName>,
}

/// The state of the authorities and of the hosts' certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The trusted authorities, the oldest first. None in a cloud without a listener for hosts.
    pub authorities: Vec<InspectedAuthority>,
    /// The number of hosts with a valid certificate.
    pub hosts: usize,
    /// Hosts with an overdue renewal and the expiry of their certificate, earliest first.
    pub expiring: Vec<(HostName, Timestamp)>,
}

impl Inspection {
    /// The names of hosts for a message: the first ones, and the number of the others.
    pub fn names(hosts: &[HostName]) -> String {
        names(hosts)
    }
}

impl Authorities {
    /// Reads the state of the authorities and of the hosts' certificates.
    ///
    /// # Errors
    /// A database error, or [`Error::Pki`] if an authority's certificate is damaged.
    pub async fn inspect(store: &Store, now: Timestamp) -> Result<Inspection, Error> {
        let read = store.read(move |tx| Ok::<_, Error>((rows::all(tx)?, certified(tx, now)?)));
        let (all, hosts) = read.await?;
        let mark = mark(&all, now);
        let signing = in_state(&all, AuthorityState::Signing);
        let is_late = |authority: &KnownAuthority, host: &Certified| match authority.state {
            AuthorityState::Staged => !host.trusts(&mark),
            AuthorityState::Outgoing => {
                signing.is_some_and(|signing| host.needs_outgoing(signing, &mark))
            }
            AuthorityState::Signing | AuthorityState::Retired => false,
        };
        let mut authorities = Vec::new();
        for known in all.iter().filter(|one| is_trusted(one, now)) {
            let late = hosts.iter().filter(|host| is_late(known, host));
            authorities.push(InspectedAuthority {
                not_after: kilonova_pki::read(&known.certificate)?.not_after,
                late: late.map(|host| host.host.clone()).collect(),
                known: known.clone(),
            });
        }
        let late = hosts.iter().filter(|host| is_overdue(host, now));
        let mut expiring: Vec<_> = late.map(|host| (host.host.clone(), host.expires_at)).collect();
        expiring.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        Ok(Inspection { authorities, hosts: hosts.len(), expiring })
    }
}

/// True if half of the renewal period has passed: a host renews when a third of the certificate's
/// validity remains.
fn is_overdue(host: &Certified, now: Timestamp) -> bool {
    let valid = host.expires_at.duration_since(host.made_at);
    host.expires_at.duration_since(now) < valid.checked_div(6).unwrap_or_default()
}
