//! The files that pages load: our own, and two libraries exactly as their registry packages contain them.
//!
//! The program contains each file once, compressed by the build script. Its name contains a hash of its content, so a
//! browser may cache it forever, and a page of an upgraded controller never uses an old file. Nothing is
//! loaded from another site. `assets/vendor.sha256` contains the hashes of the libraries, which a test checks.

use std::io::Read;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};

/// One file.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Its name in URLs.
    pub name: String,
    /// The media type.
    pub media: &'static str,
    /// The content, compressed with gzip.
    pub packed: &'static [u8],
}

impl Asset {
    /// The content for a client that does not accept gzip.
    pub fn unpacked(&self) -> std::io::Result<Vec<u8>> {
        let mut content = Vec::new();
        GzDecoder::new(self.packed).read_to_end(&mut content)?;
        Ok(content)
    }
}

macro_rules! assets {
    ($($name:ident = $file:literal, $stem:literal, $end:literal, $media:literal;)*) => {$(
        pub(crate) static $name: LazyLock<Asset> = LazyLock::new(|| {
            let packed = include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".gz"));
            let hash: String =
                Sha256::digest(packed).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            Asset { name: format!(concat!($stem, ".{}.", $end), hash), media: $media, packed }
        });
    )*
        /// The file with this name.
        pub(crate) fn find(name: &str) -> Option<&'static Asset> {
            [$(&*$name),*].into_iter().find(|asset| asset.name == name)
        }
    };
}

assets! {
    STYLE = "dashboard.css", "dashboard", "css", "text/css; charset=utf-8";
    SCRIPT = "dashboard.js", "dashboard", "js", "text/javascript; charset=utf-8";
    ICON = "icon.svg", "icon", "svg", "image/svg+xml";
    HTMX = "htmx.min.js", "htmx", "js", "text/javascript; charset=utf-8";
    HTMX_SSE = "htmx-ext-sse.min.js", "htmx-ext-sse", "js", "text/javascript; charset=utf-8";
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn hash(content: &[u8]) -> String {
        Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_libraries_are_unchanged() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
        let sums = std::fs::read_to_string(root.join("vendor.sha256")).expect("the hashes exist");
        let mut listed = 0;
        for line in sums.lines() {
            let (sum, name) = line.split_once("  ").expect("a line is a hash and a name");
            let content = std::fs::read(root.join("vendor").join(name)).expect("the file exists");
            assert_eq!(hash(&content), sum, "{name}");
            listed += 1;
        }
        let found = std::fs::read_dir(root.join("vendor")).expect("the folder exists").count();
        assert_eq!(listed, found);
        for asset in [&HTMX, &HTMX_SSE] {
            let content = asset.unpacked().expect("it is a gzip file");
            assert!(sums.contains(&hash(&content)), "{}", asset.name);
        }
    }

    #[test]
    fn names_are_those_of_the_content() {
        assert!(STYLE.name.starts_with("dashboard.") && STYLE.name.ends_with(".css"));
        assert_eq!(find(&STYLE.name).map(|asset| asset.media), Some("text/css; charset=utf-8"));
        assert!(find("dashboard.css").is_none() && find("../Cargo.toml").is_none());
    }
}
