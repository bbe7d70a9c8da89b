//! What a domain is doing, from what libvirt says of it and from our own mark on it.
//!
//! libvirt forgets why a domain is shut off when it is restarted, and has no word for one that waits
//! for its guest. The mark is kept in the domain's metadata under a namespace of its own. In doubt a
//! guest that was leaving is taken for gone: started here too, it would run twice on one disk.

use kilonova_hypervisor::Life;
use roxmltree::Document;
use virt_sys as sys;

/// Namespace of the mark.
pub(crate) const NAMESPACE: &str = "urn:kilonova:life:1";
/// Prefix of the mark's element.
pub(crate) const KEY: &str = "life";

/// What libvirt does not know of a domain that is not simply here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It waits for its guest, which comes from another host.
    Incoming,
    /// Its guest is on the way to another host.
    Leaving,
    /// Its guest has gone to another host.
    Left,
}

impl Mark {
    const ALL: [Self; 3] = [Self::Incoming, Self::Leaving, Self::Left];

    fn word(self) -> &'static str {
        match self {
            Self::Incoming => "incoming",
            Self::Leaving => "leaving",
            Self::Left => "left",
        }
    }

    /// The element as it stands in the metadata.
    pub(crate) fn to_xml(self) -> String {
        format!("<{KEY}:is xmlns:{KEY}='{NAMESPACE}' state='{}'/>", self.word())
    }

    /// The element as libvirt takes it to put it there.
    pub(crate) fn element(self) -> String {
        format!("<is state='{}'/>", self.word())
    }

    /// The mark in a domain's XML.
    pub(crate) fn of(xml: &str) -> Option<Self> {
        let document = Document::parse(xml).ok()?;
        let metadata = document.root_element().children().find(|n| n.has_tag_name("metadata"))?;
        let is = metadata.children().find(|node| node.has_tag_name((NAMESPACE, "is")))?;
        let word = is.attribute("state")?;
        Self::ALL.into_iter().find(|mark| mark.word() == word)
    }
}

/// What libvirt says of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// `VIR_DOMAIN_RUNNING`, …
    pub state: u32,
    /// Why.
    pub reason: u32,
    /// Whether its memory is on disk.
    pub saved: bool,
    pub mark: Option<Mark>,
}

impl Seen {
    pub(crate) fn life(self) -> Life {
        match self.state {
            sys::VIR_DOMAIN_PAUSED => {
                let coming = matches!(
                    self.reason,
                    sys::VIR_DOMAIN_PAUSED_MIGRATION | sys::VIR_DOMAIN_PAUSED_STARTING_UP
                );
                if coming && self.mark == Some(Mark::Incoming) {
                    Life::Incoming
                } else {
                    Life::Paused
                }
            }
            sys::VIR_DOMAIN_RUNNING
            | sys::VIR_DOMAIN_BLOCKED
            | sys::VIR_DOMAIN_SHUTDOWN
            | sys::VIR_DOMAIN_PMSUSPENDED => Life::Running,
            _ if self.saved => Life::Saved,
            _ => match (self.mark, self.reason) {
                (Some(Mark::Incoming), _) => Life::Incoming,
                (Some(Mark::Left), _) => Life::Left,
                (
                    Some(Mark::Leaving),
                    sys::VIR_DOMAIN_SHUTOFF_MIGRATED | sys::VIR_DOMAIN_SHUTOFF_UNKNOWN,
                ) => Life::Left,
                _ => Life::Off,
            },
        }
    }

    /// Whether the guest that was waited for has come, so that the mark is out of date.
    pub(crate) fn has_arrived(self) -> bool {
        self.mark == Some(Mark::Incoming) && self.life().is_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_by_state_reason_and_mark() {
        let seen = |state, reason, mark| Seen { state, reason, saved: false, mark };
        let off = sys::VIR_DOMAIN_SHUTOFF;
        let (running, paused) = (sys::VIR_DOMAIN_RUNNING, sys::VIR_DOMAIN_PAUSED);
        let (user, migration) = (sys::VIR_DOMAIN_PAUSED_USER, sys::VIR_DOMAIN_PAUSED_MIGRATION);
        let (gone, unknown) = (sys::VIR_DOMAIN_SHUTOFF_MIGRATED, sys::VIR_DOMAIN_SHUTOFF_UNKNOWN);
        let by_itself = sys::VIR_DOMAIN_SHUTOFF_SHUTDOWN;
        for (seen, life) in [
            (seen(running, 1, None), Life::Running),
            (seen(sys::VIR_DOMAIN_SHUTDOWN, 0, None), Life::Running),
            (seen(paused, user, None), Life::Paused),
            (seen(paused, migration, None), Life::Paused),
            (seen(paused, migration, Some(Mark::Leaving)), Life::Paused),
            (seen(paused, migration, Some(Mark::Incoming)), Life::Incoming),
            (seen(paused, user, Some(Mark::Incoming)), Life::Paused),
            (seen(off, unknown, Some(Mark::Incoming)), Life::Incoming),
            (seen(off, unknown, None), Life::Off),
            (seen(off, gone, Some(Mark::Leaving)), Life::Left),
            (seen(off, unknown, Some(Mark::Leaving)), Life::Left),
            (seen(off, by_itself, Some(Mark::Leaving)), Life::Off),
            (seen(off, by_itself, Some(Mark::Left)), Life::Left),
            (seen(sys::VIR_DOMAIN_CRASHED, 0, None), Life::Off),
            (Seen { saved: true, ..seen(off, unknown, None) }, Life::Saved),
        ] {
            assert_eq!(seen.life(), life, "{seen:?}");
        }
        assert!(seen(running, 1, Some(Mark::Incoming)).has_arrived());
        assert!(!seen(paused, migration, Some(Mark::Incoming)).has_arrived());
    }

    #[test]
    fn marks_are_read_from_where_they_are_written() {
        for mark in Mark::ALL {
            let xml = format!("<domain><metadata>{}</metadata></domain>", mark.to_xml());
            assert_eq!(Mark::of(&xml), Some(mark));
        }
        assert_eq!(Mark::of("<domain><metadata/></domain>"), None);
    }
}
