//! Parses the output of `ip -json`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::OURS;
use crate::run::{run, words};

/// Links by name.
pub(crate) type Links = BTreeMap<String, Link>;

/// The relevant properties of a link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Link {
    #[serde(rename = "ifname")]
    pub name: String,
    #[serde(default, rename = "ifindex")]
    pub index: u32,
    /// Its MAC address.
    #[serde(default, rename = "address")]
    pub mac: Option<String>,
    #[serde(default)]
    pub mtu: i64,
    #[serde(default)]
    pub flags: Vec<String>,
    /// The bridge that it is attached to.
    #[serde(default)]
    pub master: Option<String>,
    /// Its lower link.
    #[serde(default, rename = "link")]
    pub lower: Option<String>,
    #[serde(default, rename = "ifalias")]
    pub alias: Option<String>,
    #[serde(default, rename = "linkinfo")]
    pub info: Info,
    #[serde(default, rename = "addr_info")]
    pub addresses: Vec<Address>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Info {
    #[serde(default, rename = "info_kind")]
    pub kind: Option<String>,
    #[serde(default, rename = "info_data")]
    pub data: Data,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Data {
    /// The VLAN id.
    #[serde(default)]
    pub id: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Address {
    #[serde(default)]
    pub local: Option<String>,
    #[serde(default)]
    pub prefixlen: Option<u8>,
    #[serde(default)]
    pub scope: Option<String>,
}

impl Link {
    pub fn is_ours(&self) -> bool {
        self.alias.as_deref() == Some(OURS)
    }

    pub fn is_up(&self) -> bool {
        self.flags.iter().any(|flag| flag == "UP")
    }

    pub fn is(&self, kind: &str) -> bool {
        self.info.kind.as_deref() == Some(kind)
    }

    /// An address that the host itself uses.
    pub fn own_address(&self) -> Option<&str> {
        let of_host = |address: &&Address| address.scope.as_deref() != Some("link");
        self.addresses.iter().filter(of_host).find_map(|address| address.local.as_deref())
    }
}

/// All links of the host.
pub(crate) async fn read() -> Result<Links, String> {
    let listing = run("ip", &words(&["-json", "-details", "address", "show"]), b"").await?;
    parse(&listing)
}

pub(crate) fn parse(text: &[u8]) -> Result<Links, String> {
    let all: Vec<Link> = serde_json::from_slice(text)
        .map_err(|error| format!("unexpected output of ip: {error}"))?;
    Ok(all.into_iter().map(|link| (link.name.clone(), link)).collect())
}
