//! Compresses the assets, so that the program contains them only in the form that browsers receive.

#![allow(clippy::expect_used, clippy::panic, reason = "a build script fails by a panic")]

use std::io::Write;
use std::path::Path;

/// The files of `assets/`; `src/assets.rs` has the same names.
const FILES: [&str; 5] = [
    "dashboard.css",
    "dashboard.js",
    "icon.svg",
    "vendor/htmx.min.js",
    "vendor/htmx-ext-sse.min.js",
];

fn main() {
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    println!("cargo::rerun-if-changed=build.rs");
    for file in FILES {
        let path = Path::new(&root).join("assets").join(file);
        println!("cargo::rerun-if-changed={}", path.display());
        let content = std::fs::read(&path).expect("the asset is readable");
        let name = Path::new(file).file_name().expect("the asset has a name");
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(&content).expect("memory takes it");
        let packed = packed.finish().expect("memory takes it");
        let target = Path::new(&out).join(name).with_added_extension("gz");
        std::fs::write(target, packed).expect("the folder of the build is writable");
    }
}
