//! NVIDIA's Xid messages in the kernel log, and their effect on the GPU's health.
//!
//! The default follows the published catalogue: errors that a guest's program causes are ignored,
//! those that an operator should check are reported, and those that need a reset, a reboot or a new
//! card quarantine the GPU. `[devices] xid_policy` overrides single numbers.

use std::collections::BTreeMap;

use crate::PciAddress;

/// The effect of a message on its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Ignore,
    /// The GPU is degraded, but still offered.
    Report,
    /// The GPU has failed and is not offered until an operator repairs it.
    Quarantine,
}

use Action::{Ignore, Quarantine, Report};

const NAMES: [(&str, Action); 3] =
    [("ignore", Ignore), ("report", Report), ("quarantine", Quarantine)];
const OTHERS: &str = "default";

const CATALOGUE: [(u32, Action, &str); 38] = [
    (8, Ignore, "the GPU stopped processing"),
    (13, Ignore, "graphics engine exception"),
    (31, Ignore, "memory page fault"),
    (32, Report, "corrupted push buffer"),
    (38, Report, "driver firmware error"),
    (43, Ignore, "the GPU stopped processing for a program"),
    (44, Report, "graphics engine fault during a context switch"),
    (45, Ignore, "clean-up after earlier errors"),
    (46, Quarantine, "the GPU stopped processing"),
    (48, Quarantine, "double bit ECC error"),
    (54, Quarantine, "auxiliary power is not connected"),
    (57, Report, "error programming the video memory interface"),
    (58, Report, "unstable video memory interface"),
    (61, Report, "micro-controller warning"),
    (62, Quarantine, "the micro-controller halted"),
    (63, Report, "a memory row was remapped or a page retired"),
    (64, Quarantine, "a memory row could not be remapped or a page not retired"),
    (65, Report, "video processor exception"),
    (68, Ignore, "video decoder exception"),
    (69, Ignore, "graphics engine class error"),
    (74, Quarantine, "NVLink error"),
    (78, Report, "a vGPU could not start"),
    (79, Quarantine, "the GPU has fallen off the bus"),
    (92, Report, "high rate of single bit ECC errors"),
    (93, Report, "a write to the fuses was refused"),
    (94, Report, "contained memory error"),
    (95, Quarantine, "uncontained memory error"),
    (109, Report, "context switch timed out"),
    (110, Quarantine, "security fault"),
    (119, Quarantine, "the GPU's system processor timed out"),
    (120, Quarantine, "the GPU's system processor failed"),
    (121, Report, "corrected error on the link between chips"),
    (136, Quarantine, "link training failed"),
    (140, Quarantine, "unrecovered memory error"),
    (143, Quarantine, "the GPU failed to start"),
    (149, Quarantine, "NVLink failure"),
    (154, Report, "the required recovery action changed"),
    (155, Report, "NVLink error from software"),
];

/// The effect of each number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XidPolicy {
    by_operator: BTreeMap<u32, Action>,
    others: Option<Action>,
}

impl XidPolicy {
    /// Parses `94:quarantine, 13:report, default:ignore`; `default` applies to numbers that are in
    /// neither this policy nor the catalogue.
    ///
    /// # Errors
    /// Why the text is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut policy = Self::default();
        for entry in text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty()) {
            let like = || format!("{entry:?} does not have the form 94:quarantine");
            let (number, action) = entry.split_once(':').ok_or_else(like)?;
            let (number, action) = (number.trim(), action.trim());
            let known = NAMES.iter().find(|(name, _)| *name == action);
            let action = known.map(|(_, action)| *action).ok_or_else(|| {
                let all = NAMES.map(|(name, _)| name).join(", ");
                format!("{entry:?}: {action:?} must be one of {all}")
            })?;
            let before = if number == OTHERS {
                policy.others.replace(action)
            } else {
                policy.by_operator.insert(number.parse().map_err(|_| like())?, action)
            };
            if before.is_some() {
                return Err(format!("{number} is listed twice"));
            }
        }
        Ok(policy)
    }

    pub(crate) fn action(&self, number: u32) -> Action {
        let listed = CATALOGUE.iter().find(|(known, ..)| *known == number);
        let by_catalogue = listed.map(|(_, action, _)| *action);
        let by_operator = self.by_operator.get(&number).copied();
        by_operator.or(by_catalogue).or(self.others).unwrap_or(Report)
    }
}

/// An Xid message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Xid {
    pub address: String,
    pub number: u32,
}

impl Xid {
    /// Finds `NVRM: Xid (PCI:0000:84:00): 79, …` anywhere in a line.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once("NVRM: Xid (")?;
        let (place, rest) = rest.split_once(')')?;
        let place = place.strip_prefix("PCI:").unwrap_or(place).to_ascii_lowercase();
        let place = if place.contains('.') { place } else { format!("{place}.0") };
        let number = rest.strip_prefix(':')?.trim_start();
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        Some(Self {
            address: PciAddress::parse(&place)?.to_string(),
            number: number[..digits].parse().ok()?,
        })
    }

    pub fn reason(&self) -> String {
        let listed = CATALOGUE.iter().find(|(known, ..)| *known == self.number);
        let meaning = listed.map_or("see NVIDIA's list of Xid messages", |(.., text)| text);
        format!("Xid {} in the kernel log: {meaning}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_in_every_form_of_line() {
        let of = |line: &str| Xid::parse(line).map(|xid| (xid.address, xid.number));
        let bus_84 = |number| Some(("0000:84:00.0".to_owned(), number));
        for (line, found) in [
            ("NVRM: Xid (PCI:0000:84:00): 79, pid=1, GPU has fallen off the bus.", bus_84(79)),
            ("4,901,12345678,-;NVRM: Xid (PCI:0000:84:00): 31, Ch 00000010", bus_84(31)),
            ("Nov 21 h kernel: [ 9.1] NVRM: Xid (0000:84:00): 13, 0005", bus_84(13)),
            ("NVRM: Xid (PCI:0000:84:00.0): 48", bus_84(48)),
            ("NVRM: Xid (PCI:0000:84:00): , x", None),
            ("NVRM: Xid (PCI:0000:84:00) 79", None),
            ("NVRM: Xid (PCI:0000:84", None),
            ("NVRM: Xid (43, pid: 5678): ROBUST", None),
            ("NVRM: Xid (PCI:0000:84:00): 99999999999999999999", None),
            ("nvidia 0000:84:00.0: enabled", None),
            ("", None),
        ] {
            assert_eq!(of(line), found, "{line}");
        }
        assert_eq!(of("NVRM: Xid (PCI:0000:0A:1C): 63"), Some(("0000:0a:1c.0".to_owned(), 63)));
    }

    #[test]
    fn the_policy_overrides_the_catalogue() {
        let policy = XidPolicy::default();
        assert_eq!(
            [13, 63, 79, 9999].map(|n| policy.action(n)),
            [Ignore, Report, Quarantine, Report]
        );
        let policy = XidPolicy::parse("13: quarantine,79:ignore\n default:ignore,")
            .expect("the policy is valid");
        assert_eq!(
            [13, 63, 79, 9999].map(|n| policy.action(n)),
            [Quarantine, Report, Ignore, Ignore]
        );
        for (wrong, why) in [
            ("79", "\"79\" does not have the form 94:quarantine"),
            ("x:ignore", "\"x:ignore\" does not have the form 94:quarantine"),
            ("79:drop", "\"79:drop\": \"drop\" must be one of ignore, report, quarantine"),
            ("79:ignore,79:report", "79 is listed twice"),
        ] {
            assert_eq!(XidPolicy::parse(wrong).expect_err(wrong), why);
        }
        assert!(CATALOGUE.is_sorted_by_key(|(number, ..)| *number), "each number once");
    }
}
