//! What a bitstream says of itself, read from its first bytes before a tool is let at a card.
//!
//! Owns two formats: Intel's GBS (a magic, the length of a JSON text, the text) and Xilinx' container.
//! Unknown bytes are refused with what was expected; whether a card takes the rest is its tool's to say.

use serde_json::Value;

const GBS: &[u8; 16] = b"XeonFPGA\xb7GBSv001";
const XCLBIN: &[u8; 8] = b"xclbin2\0";
/// Bytes that the JSON text of a GBS may have.
const MOST_METADATA: usize = 64 * 1024;

/// Bytes that have to be read of a file to know it.
pub const BITSTREAM_HEAD: usize = 20 + MOST_METADATA;

/// A bitstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bitstream {
    /// The region that it is for, 32 hex digits, where it says so.
    pub region: Option<String>,
    /// The function that it loads, 32 hex digits, where it says so.
    pub function: Option<String>,
}

impl Bitstream {
    /// Reads the first bytes of a file that is to be loaded into a card of `driver`.
    ///
    /// # Errors
    /// Why it is none, for people.
    pub fn read(driver: &str, head: &[u8]) -> Result<Self, String> {
        match driver {
            "intel" => gbs(head),
            "xilinx" if head.starts_with(XCLBIN) => Ok(Self::default()),
            "xilinx" => Err("it is no bitstream for this card: a Xilinx container begins with \
                             xclbin2"
                .to_owned()),
            other => Err(format!("cards of the driver {other} take no bitstreams")),
        }
    }
}

fn gbs(head: &[u8]) -> Result<Bitstream, String> {
    let wrong = |why: &str| format!("it is no bitstream for this card: {why}");
    let rest = head
        .strip_prefix(GBS)
        .ok_or_else(|| wrong("an Intel green bitstream begins with XeonFPGA and GBSv001"))?;
    let (length, rest) =
        rest.split_first_chunk::<4>().ok_or_else(|| wrong("it ends in its header"))?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > MOST_METADATA {
        return Err(wrong("its header is too long"));
    }
    let text = rest.get(..length).ok_or_else(|| wrong("it ends in its header"))?;
    let metadata: Value = serde_json::from_slice(text)
        .map_err(|error| wrong(&format!("its header is no JSON ({error})")))?;
    let image = &metadata["afu-image"];
    let id = |value: &Value| value.as_str().and_then(hex_id);
    Ok(Bitstream {
        region: id(&image["interface-uuid"]),
        function: id(&image["accelerator-clusters"][0]["accelerator-type-uuid"]),
    })
}

/// The digits of an id, however it is written.
pub fn hex_id(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let fits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    fits.then(|| digits.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn green(metadata: &str) -> Vec<u8> {
        let length = u32::try_from(metadata.len()).expect("short").to_le_bytes();
        [&GBS[..], &length, metadata.as_bytes(), b"the rest"].concat()
    }

    #[test]
    fn a_green_bitstream_names_region_and_function() {
        let bytes = green(
            r#"{"version": 1, "afu-image": {"interface-uuid": "F3C99413-5081-4AAD-5F1F-B0D0E7E5C0C6",
               "accelerator-clusters": [{"accelerator-type-uuid": "331db30c-9885-41ea-9081-f88b8f655caa"}]}}"#,
        );
        let read = Bitstream::read("intel", &bytes).expect("a bitstream");
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
            ("intel", GBS.to_vec(), "ends in its header"),
            ("intel", cut, "ends in its header"),
            ("intel", long, "too long"),
            ("intel", green("{"), "no JSON"),
            ("xilinx", green("{}"), "xclbin2"),
            ("fake", green("{}"), "take no bitstreams"),
        ] {
            let why = Bitstream::read(driver, &bytes).expect_err("refused");
            assert!(why.contains(part), "{driver}: {why}");
        }
    }
}
