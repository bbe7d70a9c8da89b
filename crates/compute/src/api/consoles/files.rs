//! The files of the console page: noVNC, unchanged from its registry package, and our page around it.
//!
//! `console/novnc.sha256` contains the hash of each noVNC file; a test compares the files with it.

macro_rules! embedded {
    ($folder:literal; $($name:literal,)*) => {
        &[$((
            $name,
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/console/", $folder, $name)) as &[u8],
        ),)*]
    };
}

/// Names and contents.
type Files = &'static [(&'static str, &'static [u8])];

/// Our own files. [`PAGE_NAMES`] are the names that operators' base URLs may use for the page.
const PAGE: Files = embedded! { ""; "page.html", "page.css", "page.js", };
const PAGE_NAMES: [&str; 3] = ["vnc_auto.html", "vnc_lite.html", "vnc.html"];

const NOVNC: Files = embedded! {
    "novnc/";
    "AUTHORS",
    "LICENSE.txt",
    "core/base64.js",
    "core/crypto/aes.js",
    "core/crypto/bigint.js",
    "core/crypto/crypto.js",
    "core/crypto/des.js",
    "core/crypto/dh.js",
    "core/crypto/md5.js",
    "core/crypto/rsa.js",
    "core/decoders/copyrect.js",
    "core/decoders/h264.js",
    "core/decoders/hextile.js",
    "core/decoders/jpeg.js",
    "core/decoders/raw.js",
    "core/decoders/rre.js",
    "core/decoders/tight.js",
    "core/decoders/tightpng.js",
    "core/decoders/zlib.js",
    "core/decoders/zrle.js",
    "core/deflator.js",
    "core/display.js",
    "core/encodings.js",
    "core/inflator.js",
    "core/input/domkeytable.js",
    "core/input/fixedkeys.js",
    "core/input/gesturehandler.js",
    "core/input/keyboard.js",
    "core/input/keysym.js",
    "core/input/keysymdef.js",
    "core/input/util.js",
    "core/input/vkeys.js",
    "core/input/xtscancodes.js",
    "core/ra2.js",
    "core/rfb.js",
    "core/util/browser.js",
    "core/util/cursor.js",
    "core/util/element.js",
    "core/util/events.js",
    "core/util/eventtarget.js",
    "core/util/int.js",
    "core/util/logging.js",
    "core/util/strings.js",
    "core/websock.js",
    "docs/LICENSE.BSD-2-Clause",
    "docs/LICENSE.BSD-3-Clause",
    "docs/LICENSE.MPL-2.0",
    "docs/LICENSE.OFL-1.1",
    "vendor/pako/LICENSE",
    "vendor/pako/lib/utils/common.js",
    "vendor/pako/lib/zlib/adler32.js",
    "vendor/pako/lib/zlib/constants.js",
    "vendor/pako/lib/zlib/crc32.js",
    "vendor/pako/lib/zlib/deflate.js",
    "vendor/pako/lib/zlib/gzheader.js",
    "vendor/pako/lib/zlib/inffast.js",
    "vendor/pako/lib/zlib/inflate.js",
    "vendor/pako/lib/zlib/inftrees.js",
    "vendor/pako/lib/zlib/messages.js",
    "vendor/pako/lib/zlib/trees.js",
    "vendor/pako/lib/zlib/zstream.js",
};

/// The content and the media type of a file.
pub(super) fn find(name: &str) -> Option<(&'static [u8], &'static str)> {
    let name = if PAGE_NAMES.contains(&name) { "page.html" } else { name };
    let (name, content) = PAGE.iter().chain(NOVNC).find(|(known, _)| *known == name)?;
    let media = match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    };
    Some((content, media))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use sha2::{Digest, Sha256};

    use super::*;

    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("the folder is readable") {
            let path = entry.expect("the entry is readable").path();
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }

    #[test]
    fn novnc_is_unchanged_and_complete() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
        let sums = std::fs::read_to_string(root.join("novnc.sha256")).expect("the hashes exist");
        let mut found = Vec::new();
        walk(&root.join("novnc"), &mut found);
        let mut listed = BTreeSet::new();
        for line in sums.lines() {
            let (sum, name) = line.split_once("  ").expect("a line is a hash and a name");
            let content = std::fs::read(root.join("novnc").join(name)).expect("the file exists");
            let hash: String =
                Sha256::digest(&content).iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(hash, sum, "{name}");
            listed.insert(root.join("novnc").join(name));
        }
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), listed);
        for path in listed.iter().filter(|path| path.extension().is_some_and(|end| end == "js")) {
            let name = path.strip_prefix(root.join("novnc")).expect("the file is in the folder");
            let name = name.to_str().expect("the name is text");
            assert!(find(name).is_some(), "{name} is served");
        }
    }

    #[test]
    fn every_name_of_the_page_is_html() {
        for name in PAGE_NAMES {
            assert!(find(name).is_some_and(|(_, media)| media.starts_with("text/html")), "{name}");
        }
        assert!(find("../page.html").is_none() && find("").is_none());
        assert!(find("LICENSE.txt").is_some_and(|(_, media)| media.starts_with("text/plain")));
    }
}
