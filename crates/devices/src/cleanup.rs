//! `[devices] cleanup_command` and `cleanup_timeout`: cleaning a function that a guest released,
//! before another guest gets it.
//!
//! Owns which deployables become dirty when released, and who cleans them: the agent if it has a
//! command for their resource class or knows how (NVMe), otherwise an operator. It never runs
//! anything.

use std::collections::BTreeMap;
use std::time::Duration;

use kilonova_ids::ResourceClass;
use kilonova_node_api::{
    CLEANED_BY_AGENT, CLEANED_BY_OPERATOR, Device, DeviceKind, HandleSlot, ON_RELEASE,
};

/// Default timeout of a cleaning.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Trait of a deployable that is for one-time use.
const ONE_TIME_USE: &str = "HW_PCI_ONE_TIME_USE";

/// The cleaning commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleanup {
    commands: BTreeMap<ResourceClass, Vec<String>>,
    timeout: Duration,
}

impl Default for Cleanup {
    fn default() -> Self {
        Self { commands: BTreeMap::new(), timeout: TIMEOUT }
    }
}

impl Cleanup {
    /// Parses entries such as `CUSTOM_NVME:/usr/local/bin/wipe --fast`, and the timeout in seconds.
    ///
    /// # Errors
    /// Why an entry is invalid.
    pub fn new(entries: &[String], seconds: Option<u64>) -> Result<Self, String> {
        let mut commands = BTreeMap::new();
        for entry in entries {
            let (class, line) = entry.split_once(':').unwrap_or((entry, ""));
            let class = ResourceClass::parse(class.trim()).map_err(|_| {
                format!(
                    "'{entry}' must be a resource class, a colon and a command, such as \
                     CUSTOM_NVME:/usr/local/bin/wipe"
                )
            })?;
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            if !words.first().is_some_and(|program| program.starts_with('/')) {
                return Err(format!(
                    "the command of {class} must start with the absolute path of a program"
                ));
            }
            if commands.contains_key(&class) {
                return Err(format!("duplicate command for {class}"));
            }
            commands.insert(class, words);
        }
        let timeout = match seconds {
            None => TIMEOUT,
            Some(0) => return Err("cleanup_timeout must be at least 1 second".to_owned()),
            Some(seconds) => Duration::from_secs(seconds),
        };
        Ok(Self { commands, timeout })
    }

    /// The program and arguments for a resource class.
    pub fn command(&self, resource_class: &ResourceClass) -> Option<&[String]> {
        self.commands.get(resource_class).map(Vec::as_slice)
    }

    /// The timeout of a cleaning.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Records on each deployable who cleans its released functions.
    pub(crate) fn set_cleaners(&self, devices: &mut [Device]) {
        for device in devices {
            let disk = device.kind == DeviceKind::Ssd;
            for part in &mut device.deployables {
                let functions =
                    !part.slots.iter().any(|slot| matches!(slot, HandleSlot::Mdev { .. }));
                let has_command = self.commands.contains_key(&part.resource_class);
                let once = part.traits.iter().any(|name| name == ONE_TIME_USE);
                let who = match functions {
                    true if has_command || disk => CLEANED_BY_AGENT,
                    true if once => CLEANED_BY_OPERATOR,
                    _ => continue,
                };
                part.facts.insert(ON_RELEASE.to_owned(), who.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(entries: &[&str]) -> Result<Cleanup, String> {
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        Cleanup::new(&entries, None)
    }

    #[test]
    fn a_command_belongs_to_a_class() {
        let cleanup = options(&["CUSTOM_NVME:/bin/wipe --fast", " FPGA : /bin/erase"])
            .expect("the options are valid");
        let words = ["/bin/wipe".to_owned(), "--fast".to_owned()];
        assert_eq!(cleanup.command(&ResourceClass::verbatim("CUSTOM_NVME")), Some(&words[..]));
        assert_eq!(
            cleanup.command(&ResourceClass::verbatim("FPGA")),
            Some(&["/bin/erase".to_owned()][..])
        );
        assert_eq!(cleanup.command(&ResourceClass::verbatim("VGPU")), None);
        assert_eq!(cleanup.timeout(), Duration::from_secs(900));
    }

    #[test]
    fn entries_without_class_or_program_are_refused() {
        for (entries, part) in [
            (&["/bin/wipe"][..], "resource class"),
            (&["nvme:/bin/wipe"], "resource class"),
            (&["CUSTOM_NVME"], "absolute path"),
            (&["CUSTOM_NVME:wipe"], "absolute path"),
            (&["CUSTOM_NVME:"], "absolute path"),
            (&["FPGA:/bin/a", "FPGA:/bin/b"], "duplicate command"),
        ] {
            let why = options(entries).expect_err("the value is refused");
            assert!(why.contains(part), "{entries:?}: {why}");
        }
        assert!(Cleanup::new(&[], Some(0)).is_err());
    }
}
