//! Installs the host's certificate for libvirt's `qemu+tls`: CA, certificate and key in libvirt's
//! layout below one directory (libvirt's default is /etc/pki), with the list of revoked
//! certificates. It only writes files; `libvirt_tls` makes libvirt reload them.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use kilonova_node_link::HostIdentity;

/// Writes the certificates, unless they are already there. Returns whether anything changed.
///
/// # Errors
/// A message that names the file.
pub fn write(folder: &Path, known: &HostIdentity) -> Result<bool, String> {
    let mut changed = false;
    for (name, text, mode) in [
        ("CA/cacert.pem", &known.authority, 0o644),
        ("libvirt/private/serverkey.pem", &known.key, 0o600),
        ("libvirt/private/clientkey.pem", &known.key, 0o600),
        ("libvirt/servercert.pem", &known.certificate, 0o644),
        ("libvirt/clientcert.pem", &known.certificate, 0o644),
    ] {
        changed |= keep(&folder.join(name), text, mode)?;
    }
    Ok(changed)
}

/// Writes the list of revoked certificates. Returns whether it changed.
///
/// # Errors
/// A message that names the file.
pub fn write_revocations(folder: &Path, crl: &str) -> Result<bool, String> {
    keep(&folder.join("CA/cacrl.pem"), crl, 0o644)
}

fn keep(path: &Path, text: &str, mode: u32) -> Result<bool, String> {
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(false);
    }
    put(path, text, mode).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(true)
}

fn put(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(mode).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_files_have_libvirts_layout() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let text = |name: &str| name.to_owned();
        let known = HostIdentity {
            control: text("https://c"),
            host: kilonova_ids::HostName::verbatim("h"),
            authority: text("ca"),
            certificate: text("cert"),
            key: text("key"),
        };
        assert_eq!(write(folder.path(), &known), Ok(true));
        assert_eq!(write(folder.path(), &known), Ok(false), "the files are unchanged");
        let read = |name: &str| {
            std::fs::read_to_string(folder.path().join(name)).expect("the file is read")
        };
        assert_eq!(read("CA/cacert.pem"), "ca");
        assert_eq!(read("libvirt/servercert.pem"), read("libvirt/clientcert.pem"));
        let key = folder.path().join("libvirt/private/clientkey.pem");
        let mode = std::fs::metadata(&key).expect("the file exists").permissions().mode();
        assert_eq!((read("libvirt/private/serverkey.pem").as_str(), mode & 0o777), ("key", 0o600));
        write(folder.path(), &HostIdentity { key: text("new"), ..known.clone() })
            .expect("the file is written");
        assert_eq!(std::fs::read_to_string(key).expect("the file is read"), "new");
        assert_eq!(write_revocations(folder.path(), "crl"), Ok(true));
        assert_eq!(write_revocations(folder.path(), "crl"), Ok(false), "the list is unchanged");
        assert_eq!(read("CA/cacrl.pem"), "crl");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("the file is written");
        let message = write(&file, &known).expect_err("a directory below a file is refused");
        assert!(message.contains("file/CA/cacert.pem"), "{message}");
    }
}
