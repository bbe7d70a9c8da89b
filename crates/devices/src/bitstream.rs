//! Bitstream metadata, read from a file's first bytes before a tool programs a card.
//!
//! Owns two formats: Intel's GBS (magic, length of a JSON text, JSON text) and Xilinx' container.
//! Unknown bytes are refused with the expected format; the vendor's tool checks the rest.

use serde_json::Value;

const GBS: &[u8; 16] = b"XeonFPGA\xb7GBSv001";
const XCLBIN: &[u8; 8] = b"xclbin2\0";
/// Maximum length of a GBS's JSON text in bytes.
const MOST_METADATA: usize = 64 * 1024;

/// How many bytes of a file are needed to recognize it.
pub const BITSTREAM_HEAD: usize = 20 + MOST_METADATA;

/// The metadata of a bitstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bitstream {
    /// The region that it is built for, 32 hex digits, if stated.
    pub region: Option<String>,
    /// The function that it loads, 32 hex digits, if stated.
    pub function: Option<String>,
}

impl Bitstream {
    /// Parses the first bytes of a bitstream for a card with this `driver`.
    ///
    /// # Errors
    /// Why it is not a bitstream for the card.
    pub fn read(driver: &str, head: &[u8]) -> Result<Self, String> {
        match driver {
            "intel" => gbs(head),
            "xilinx" if head.starts_with(XCLBIN) => Ok(Self::default()),
            "xilinx" => Err("not a bitstream for this card: a Xilinx container starts with \
                             xclbin2"
                .to_owned()),
            other => Err(format!("cards with driver {other} cannot be programmed")),
        }
    }
}

fn gbs(head: &[u8]) -> Result<Bitstream, String> {
    let wrong = |why: &str| format!("not a bitstream for this card: {why}");
    let rest = head
        .strip_prefix(GBS)
        .ok_or_else(|| wrong("an Intel green bitstream starts with XeonFPGA and GBSv001"))?;
    let (length, rest) =
        rest.split_first_chunk::<4>().ok_or_else(|| wrong("it is truncated in its header"))?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > MOST_METADATA {
        return Err(wrong("its header is too long"));
    }
    let text = rest.get(..length).ok_or_else(|| wrong("it is truncated in its header"))?;
    let metadata: Value = serde_json::from_slice(text)
        .map_err(|error| wrong(&format!("its header is not JSON ({error})")))?;
    let image = &metadata["afu-image"];
    let id = |value: &Value| value.as_str().and_then(hex_id);
    Ok(Bitstream {
        region: id(&image["interface-uuid"]),
        function: id(&image["accelerator-clusters"][0]["accelerator-type-uuid"]),
    })
}

/// Normalizes an id to its hex digits.
pub fn hex_id(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let fits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    fits.then(|| digits.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn green(metadata: &str) -> Vec<u8> {
        let length = u32::try_from(metadata.len()).expect("the metadata is short").to_le_bytes();
        [&GBS[..], &length, metadata.as_bytes(), b"the rest"].concat()
    }

    #[test]
    fn a_green_bitstream_names_region_and_function() {
        let bytes = green(
            r#"{"version": 1, "afu-image": {"interface-uuid": "F3C99413-5081-4AAD-5F1F-B0D0E7E5C0C6",
               "accelerator-clusters": [{"accelerator-type-uuid": "331db30c-9885-41ea-9081-f88b8f655caa"}]}}"#,
        );
        let read = Bitstream::read("intel", &bytes).expect("the bitstream is valid");
        assert_eq!(read.region.as_deref(), Some("f3c9941350814aad5f1fb0d0e7e5c0c6"));
        assert_eq!(read.function.as_deref(), Some("331db30c988541ea9081f88b8f655caa"));
        assert_eq!(Bitstream::read("intel", &green("{}")), Ok(Bitstream::default()));
        assert_eq!(Bitstream::read("xilinx", b"xclbin2\0and so on"), Ok(Bitstream::default()));
    }

    #[test]
    fn other_bytes_are_refused_with_the_reason() {
        let mut cut = green("{}");
        cut.truncate(21);
        let mut long = green("{}");
        long[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        for (driver, bytes, part) in [
            ("intel", b"QFI\xfb".to_vec(), "XeonFPGA"),
            ("intel", Vec::new(), "XeonFPGA"),
            ("intel", GBS.to_vec(), "truncated in its header"),
            ("intel", cut, "truncated in its header"),
            ("intel", long, "too long"),
            ("intel", green("{"), "not JSON"),
            ("xilinx", green("{}"), "xclbin2"),
            ("fake", green("{}"), "cannot be programmed"),
        ] {
            let why = Bitstream::read(driver, &bytes).expect_err("the bitstream is refused");
            assert!(why.contains(part), "{driver}: {why}");
        }
    }
}
