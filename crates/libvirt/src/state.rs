//! Derives a domain's state from libvirt's report and our migration mark.
//!
//! After a restart libvirt no longer knows why a domain is shut off, and it has no state for a
//! domain that waits for an incoming migration. A mark in the domain's metadata, in our own
//! namespace, records both. When in doubt, a guest that was migrating out counts as migrated:
//! starting it here as well would run it twice on one disk.

use kilonova_hypervisor::DomainState;
use roxmltree::Document;
use virt_sys as sys;

/// Namespace of the mark.
pub(crate) const NAMESPACE: &str = "urn:kilonova:life:1";
/// Prefix of the mark's element.
pub(crate) const KEY: &str = "life";

/// A migration state that libvirt does not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The domain waits for an incoming live migration.
    Incoming,
    /// The guest has arrived, but its hardware could not be recorded yet. Once it is off, it is off like any guest.
    Arrived,
    /// The guest is being migrated to another host.
    MigratingOut,
    /// The guest was migrated to another host.
    MigratedOut,
}

impl Mark {
    const ALL: [Self; 4] = [Self::Incoming, Self::Arrived, Self::MigratingOut, Self::MigratedOut];

    fn as_str(self) -> &'static str {
        match self {
            Self::Incoming => "incoming",
            Self::Arrived => "arrived",
            Self::MigratingOut => "leaving",
            Self::MigratedOut => "left",
        }
    }

    /// The element as it appears in domain XML.
    pub(crate) fn to_xml(self) -> String {
        format!("<{KEY}:is xmlns:{KEY}='{NAMESPACE}' state='{}'/>", self.as_str())
    }

    /// The element as libvirt's `set_metadata` takes it.
    pub(crate) fn element(self) -> String {
        format!("<is state='{}'/>", self.as_str())
    }

    /// The mark in a domain's XML.
    pub(crate) fn of(xml: &str) -> Option<Self> {
        let document = Document::parse(xml).ok()?;
        let metadata = document.root_element().children().find(|n| n.has_tag_name("metadata"))?;
        let has_code = metadata.children().find(|node| node.has_tag_name((NAMESPACE, "is")))?;
        let as_str = has_code.attribute("state")?;
        Self::ALL.into_iter().find(|mark| mark.as_str() == as_str)
    }
}

/// A domain's state as libvirt reports it, with our mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DomainStatus {
    /// `VIR_DOMAIN_RUNNING`, …
    pub code: u32,
    /// The reason code of the state.
    pub reason: u32,
    /// True if a managed save image exists.
    pub saved: bool,
    pub mark: Option<Mark>,
}

impl DomainStatus {
    pub(crate) fn domain_state(self) -> DomainState {
        match self.code {
            sys::VIR_DOMAIN_PAUSED => {
                let incoming = matches!(
                    self.reason,
                    sys::VIR_DOMAIN_PAUSED_MIGRATION | sys::VIR_DOMAIN_PAUSED_STARTING_UP
                );
                if incoming && self.mark == Some(Mark::Incoming) {
                    DomainState::Incoming
                } else {
                    DomainState::Paused
                }
            }
            sys::VIR_DOMAIN_RUNNING
            | sys::VIR_DOMAIN_BLOCKED
            | sys::VIR_DOMAIN_SHUTDOWN
            | sys::VIR_DOMAIN_PMSUSPENDED => DomainState::Running,
            _ if self.saved => DomainState::Saved,
            _ => match (self.mark, self.reason) {
                (Some(Mark::Incoming), _) => DomainState::Incoming,
                (Some(Mark::MigratedOut), _) => DomainState::MigratedOut,
                (
                    Some(Mark::MigratingOut),
                    sys::VIR_DOMAIN_SHUTOFF_MIGRATED | sys::VIR_DOMAIN_SHUTOFF_UNKNOWN,
                ) => DomainState::MigratedOut,
                _ => DomainState::Shutoff,
            },
        }
    }

    /// True if the incoming guest has arrived, so that the mark is stale.
    pub(crate) fn has_arrived(self) -> bool {
        matches!(self.mark, Some(Mark::Incoming | Mark::Arrived)) && self.domain_state().is_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_by_state_reason_and_mark() {
        let status = |code, reason, mark| DomainStatus { code, reason, saved: false, mark };
        let off = sys::VIR_DOMAIN_SHUTOFF;
        let (running, paused) = (sys::VIR_DOMAIN_RUNNING, sys::VIR_DOMAIN_PAUSED);
        let (user, migration) = (sys::VIR_DOMAIN_PAUSED_USER, sys::VIR_DOMAIN_PAUSED_MIGRATION);
        let (migrated, unknown) =
            (sys::VIR_DOMAIN_SHUTOFF_MIGRATED, sys::VIR_DOMAIN_SHUTOFF_UNKNOWN);
        let guest_shutdown = sys::VIR_DOMAIN_SHUTOFF_SHUTDOWN;
        for (status, domain_state) in [
            (status(running, 1, None), DomainState::Running),
            (status(sys::VIR_DOMAIN_SHUTDOWN, 0, None), DomainState::Running),
            (status(paused, user, None), DomainState::Paused),
            (status(paused, migration, None), DomainState::Paused),
            (status(paused, migration, Some(Mark::MigratingOut)), DomainState::Paused),
            (status(paused, migration, Some(Mark::Incoming)), DomainState::Incoming),
            (status(paused, user, Some(Mark::Incoming)), DomainState::Paused),
            (status(off, unknown, Some(Mark::Incoming)), DomainState::Incoming),
            (status(paused, migration, Some(Mark::Arrived)), DomainState::Paused),
            (status(off, unknown, Some(Mark::Arrived)), DomainState::Shutoff),
            (status(off, unknown, None), DomainState::Shutoff),
            (status(off, migrated, Some(Mark::MigratingOut)), DomainState::MigratedOut),
            (status(off, unknown, Some(Mark::MigratingOut)), DomainState::MigratedOut),
            (status(off, guest_shutdown, Some(Mark::MigratingOut)), DomainState::Shutoff),
            (status(off, guest_shutdown, Some(Mark::MigratedOut)), DomainState::MigratedOut),
            (status(sys::VIR_DOMAIN_CRASHED, 0, None), DomainState::Shutoff),
            (DomainStatus { saved: true, ..status(off, unknown, None) }, DomainState::Saved),
        ] {
            assert_eq!(status.domain_state(), domain_state, "{status:?}");
        }
        assert!(status(running, 1, Some(Mark::Incoming)).has_arrived());
        assert!(status(running, 1, Some(Mark::Arrived)).has_arrived());
        assert!(!status(off, unknown, Some(Mark::Arrived)).has_arrived());
        assert!(!status(paused, migration, Some(Mark::Incoming)).has_arrived());
    }

    #[test]
    fn marks_survive_a_round_trip() {
        for mark in Mark::ALL {
            let xml = format!("<domain><metadata>{}</metadata></domain>", mark.to_xml());
            assert_eq!(Mark::of(&xml), Some(mark));
        }
        assert_eq!(Mark::of("<domain><metadata/></domain>"), None);
    }
}
