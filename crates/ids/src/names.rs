//! The names of compute hosts and resource classes, which hosts, agents and operators choose.
//!
//! They are typed like the uuids: a host's name cannot be passed as a server's name, or a class as a
//! trait. A name is compared byte by byte and never changed.
//!
//! There are two constructors. `parse` enforces the rules for new names. `verbatim` accepts any text,
//! because rows of an earlier build, the host of an external Nova, and a host or a class that a
//! request looks up must be readable, even if no host or class of ours could have that name.
//! Deserialization is verbatim too, so that the receiver of a report can list everything that is
//! wrong with it.

use std::borrow::Borrow;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Maximum length of a name in bytes.
const MAX_NAME: usize = 255;

/// The rule that a name breaks, as the end of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidName(&'static str);

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for InvalidName {}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// A name exactly as in a row, a report or a request, without checks.
            pub fn verbatim(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        // Sound for maps: the derived comparisons and hashes are those of the text.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                *self.0 == *other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                *self.0 == **other
            }
        }

        impl PartialEq<$name> for str {
            fn eq(&self, other: &$name) -> bool {
                *self == *other.0
            }
        }

        impl PartialEq<$name> for &str {
            fn eq(&self, other: &$name) -> bool {
                **self == *other.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                (*name.0).to_owned()
            }
        }

        impl From<&$name> for String {
            fn from(name: &$name) -> Self {
                (*name.0).to_owned()
            }
        }
    )*};
}

names! {
    /// The name of a compute host. It is the host's key in every table and on the wire.
    HostName;
    /// A resource class of Placement, such as `VGPU` or `CUSTOM_FPGA`.
    ResourceClass;
}

impl HostName {
    /// Parses the name under which a host registers.
    ///
    /// # Errors
    /// If it is empty, longer than 255 bytes or an IP address, or has a character that host names
    /// cannot have.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if !(1..=MAX_NAME).contains(&text.len()) || !text.bytes().all(fits) {
            return Err(InvalidName("it must consist of letters, digits, dots and hyphens"));
        }
        if text.parse::<IpAddr>().is_ok() {
            return Err(InvalidName("it must not be an IP address"));
        }
        Ok(Self::verbatim(text))
    }

    /// Parses the name of a host that joins the cloud. A name has one spelling, as host names are
    /// case-insensitive, and must not look like an address, as clients that connect to the host
    /// would interpret it as one.
    ///
    /// # Errors
    /// If it breaks one of these rules or one of [`HostName::parse`].
    pub fn parse_new(text: &str) -> Result<Self, InvalidName> {
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(InvalidName("write it in lower case"));
        }
        // inet_aton accepts one to four numbers, also hexadecimal ones, as an address.
        let number = |label: &str| {
            let digits = label.strip_prefix("0x").unwrap_or(label);
            let radix = if digits.len() < label.len() { 16 } else { 10 };
            digits.chars().all(|digit| digit.is_digit(radix))
        };
        if text.split('.').all(number) {
            return Err(InvalidName("it looks like an address; use the name of the machine"));
        }
        if text.split('.').next() == Some("localhost") {
            return Err(InvalidName("every machine has that name"));
        }
        Self::parse(text)
    }
}

impl ResourceClass {
    /// Parses a resource class.
    ///
    /// # Errors
    /// If it is not 1 to 255 of the characters that Placement allows.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let fits = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        if !(1..=MAX_NAME).contains(&text.len()) || !text.bytes().all(fits) {
            return Err(InvalidName("it must consist of the characters A-Z, 0-9 and _"));
        }
        Ok(Self::verbatim(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_registers_under_a_host_name() {
        for fine in ["gpu-1", "GPU_1.rack", "10.rack", "localhost", &"h".repeat(255)] {
            assert_eq!(HostName::parse(fine).as_deref(), Ok(fine));
        }
        for wrong in ["", "a b", "a/b", "ü", "::1", "192.0.2.1", &"h".repeat(256)] {
            assert!(HostName::parse(wrong).is_err(), "{wrong}");
            assert_eq!(HostName::verbatim(wrong), wrong);
        }
    }

    #[test]
    fn a_new_host_has_one_spelling_and_no_address() {
        for fine in ["gpu-1", "gpu_1.rack.example", "l1n1", "4u-node", "10.rack", "0xcafe-1"] {
            assert_eq!(HostName::parse_new(fine).as_deref(), Ok(fine));
        }
        for (wrong, why) in [
            ("gpU-1", "lower case"),
            ("127.0.0.1", "looks like an address"),
            ("10.1", "looks like an address"),
            ("0x7f000001", "looks like an address"),
            ("localhost.localdomain", "every machine has"),
            ("a b", "letters, digits"),
        ] {
            let message = HostName::parse_new(wrong).expect_err(wrong).to_string();
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn a_resource_class_has_placements_characters() {
        for fine in ["VGPU", "CUSTOM_A100_80GB", "_", &"A".repeat(255)] {
            assert_eq!(ResourceClass::parse(fine).as_deref(), Ok(fine));
        }
        for wrong in ["", "vgpu", "CUSTOM-A", "Ä", &"A".repeat(256)] {
            assert!(ResourceClass::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_is_its_text() {
        let name = HostName::verbatim("gpu-1");
        assert_eq!(format!("{name} {name:?} {name:>6}"), "gpu-1 \"gpu-1\"  gpu-1");
        assert!(std::collections::BTreeSet::from([name]).contains("gpu-1"));
    }
}
