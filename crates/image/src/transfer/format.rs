//! Checks that the data of an image is in its declared format. A guest's image must not make the
//! hypervisor open other files on the host. Therefore the checks refuse qcow2 files with a backing
//! file or an external data file, and "raw" data that a hypervisor could probe as another format.

use crate::Error;

/// The number of bytes from the start of an image that [`inspect`] needs.
pub(crate) const HEAD: usize = 0x8006;

const QCOW2: &[u8] = b"QFI\xfb";
/// The magic of each format and its offset.
const MAGICS: [(&str, usize, &[u8]); 7] = [
    ("qcow2", 0, QCOW2),
    ("qed", 0, b"QED\0"),
    ("vmdk", 0, b"KDMV"),
    ("vmdk", 0, b"# Disk DescriptorFile"),
    ("vhdx", 0, b"vhdxfile"),
    ("vdi", 64, b"\x7f\x10\xda\xbe"),
    ("vhd", 0, b"conectix"),
];
const ISO: (usize, &[u8]) = (0x8001, b"CD001");
/// An incompatible feature of qcow2: the data is in another file.
const EXTERNAL_DATA: u64 = 1 << 2;
/// The known incompatible features: dirty, corrupt, external data, compression, extended L2.
const KNOWN_FEATURES: u64 = (1 << 5) - 1;

/// Checks the data by its first bytes, at most [`HEAD`]; returns the disk size that a guest sees.
pub(crate) fn inspect(head: &[u8], format: &str, size: i64) -> Result<i64, Error> {
    let found = detect(head);
    let wrong = |why: String| Err(Error::Unsupported(why));
    match (format, found) {
        ("qcow2", Some("qcow2")) => qcow2(head),
        ("qcow2", _) => {
            wrong("The image data is not qcow2, which is the image's disk_format.".into())
        }
        ("iso", None) if !has(head, ISO.0, ISO.1) => wrong(
            "The image data is not an ISO 9660 file system, but the image's disk_format is iso."
                .into(),
        ),
        (_, None) => Ok(size),
        (_, Some(found)) => wrong(format!(
            "The image data is {found}, not {format}, which is the image's disk_format."
        )),
    }
}

fn detect(head: &[u8]) -> Option<&'static str> {
    MAGICS.iter().find(|(_, at, magic)| has(head, *at, magic)).map(|(name, ..)| *name)
}

fn has(head: &[u8], at: usize, magic: &[u8]) -> bool {
    head.get(at..).is_some_and(|rest| rest.starts_with(magic))
}

fn qcow2(head: &[u8]) -> Result<i64, Error> {
    let wrong = |why: &str| Err(Error::Unsupported(format!("The qcow2 image {why}.")));
    let mut header = [0; 80];
    let read = head.len().min(header.len());
    header[..read].copy_from_slice(&head[..read]);
    let word = |at: usize| {
        header[at..at + 4].iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
    };
    let long = |at: usize| word(at) << 32 | word(at + 4);
    let version = word(4);
    if !matches!(version, 2 | 3) || read < 72 || (version == 3 && read < 80) {
        return wrong("has a broken header");
    }
    if long(8) != 0 || word(16) != 0 {
        return wrong("has a backing file; upload it flattened (qemu-img convert)");
    }
    if version == 3 && long(72) & EXTERNAL_DATA != 0 {
        return wrong("keeps its data in another file; upload it flattened (qemu-img convert)");
    }
    if version == 3 && long(72) & !KNOWN_FEATURES != 0 {
        return wrong("has unsupported features; convert it (qemu-img convert)");
    }
    i64::try_from(long(24)).or_else(|_| wrong("has a broken header"))
}
