//! Deserializers for the fields of a topology file that are easily written in the wrong TOML form, each with its error
//! message.
//!
//! They check only the form; the content is checked where the field is used.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// The form of a field, worded to follow "expected" in an error message.
#[derive(Clone, Copy)]
struct Text(&'static str);
struct Texts(&'static str);
struct Numbers(&'static str);
struct Counts(&'static str);

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

impl<'de> DeserializeSeed<'de> for Text {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Texts {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(text) = list.next_element_seed(Text(self.0))? {
            all.push(text);
        }
        Ok(all)
    }
}

impl<'de> Visitor<'de> for Numbers {
    type Value = Vec<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list))
    }
}

impl<'de> Visitor<'de> for Counts {
    type Value = BTreeMap<String, u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Self::Value, A::Error> {
        BTreeMap::deserialize(MapAccessDeserializer::new(table))
    }
}

/// The CPUs of a cell.
pub(super) fn cpus<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(Text("CPUs as a list in a string, such as \"0-3,8\""))
}

/// A vendor, product or class.
pub(super) fn hex<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(Text("hex digits in a string, such as \"10de\""))
}

/// Like [`hex`], for an optional field.
pub(super) fn some_hex<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    hex(from).map(Some)
}

/// The reactions to Xid messages.
pub(super) fn xids<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(Text("reactions in one string, such as \"94:quarantine, 13:report\""))
}

/// PCI addresses.
pub(super) fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_seq(Texts("PCI addresses as strings in a list, such as [\"0000:84:00.0\"]"))
}

/// Groups of linked devices.
pub(super) fn islands<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    const FORM: &str =
        "a list with a string for each island, such as [\"0000:84:00.0, 0000:85:00.0\"]";
    from.deserialize_seq(Texts(FORM))
}

/// Devices as in nova.conf.
pub(super) fn specs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    const FORM: &str = "a list of strings with JSON, such as ['{\"vendor_id\": \"10de\"}']";
    from.deserialize_seq(Texts(FORM))
}

/// Distances between cells.
pub(super) fn distances<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    from.deserialize_seq(Numbers("the distances to all cells in a list, such as [10, 20]"))
}

/// Numbers of pages.
pub(super) fn pages<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    from.deserialize_map(Counts("numbers of pages by size in KiB, such as { 2048 = 512 }"))
}
