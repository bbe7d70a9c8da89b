//! The TLS files that live migration needs, and those that are missing. Reads no certificate:
//! libvirt and QEMU validate them when they use them.

use std::path::{Path, PathBuf};

use crate::config::LibvirtConfig;

/// The missing files for `live_migration_scheme = tls` (or such a URI) and for
/// `live_migration_with_native_tls`, one message per feature. `etc` is the host's `/etc`.
pub fn missing_certificates(config: &LibvirtConfig, etc: &Path) -> Vec<String> {
    let mut missing_certificates = Vec::new();
    let uri = config.live_migration_uri.as_deref();
    if uri.map_or(config.live_migration_scheme == "tls", |uri| uri.contains("+tls://")) {
        let daemon = std::fs::read_to_string(etc.join("libvirt/libvirtd.conf")).unwrap_or_default();
        let own = |option: &str, usual: &str| {
            option_of(&daemon, option).map_or_else(|| etc.join(usual), PathBuf::from)
        };
        let files = [
            own("ca_file", "pki/CA/cacert.pem"),
            own("cert_file", "pki/libvirt/servercert.pem"),
            own("key_file", "pki/libvirt/private/serverkey.pem"),
            etc.join("pki/libvirt/clientcert.pem"),
            etc.join("pki/libvirt/private/clientkey.pem"),
        ];
        missing_certificates.extend(absent("qemu+tls between the hosts", &files));
    }
    if config.live_migration_with_native_tls {
        let qemu = std::fs::read_to_string(etc.join("libvirt/qemu.conf")).unwrap_or_default();
        let own = etc.join("pki/libvirt-migrate");
        let folder = option_of(&qemu, "migrate_tls_x509_cert_dir").map(PathBuf::from);
        let folder = folder.or_else(|| own.is_dir().then_some(own)).unwrap_or_else(|| {
            let usual = option_of(&qemu, "default_tls_x509_cert_dir").map(PathBuf::from);
            usual.unwrap_or_else(|| etc.join("pki/qemu"))
        });
        let files = ["ca-cert", "server-cert", "server-key", "client-cert", "client-key"];
        let files = files.map(|name| folder.join(format!("{name}.pem")));
        missing_certificates.extend(absent("live_migration_with_native_tls", &files));
    }
    missing_certificates
}

fn absent(what: &str, files: &[PathBuf]) -> Option<String> {
    let absent: Vec<String> =
        files.iter().filter(|file| !file.exists()).map(|file| file.display().to_string()).collect();
    (!absent.is_empty())
        .then(|| format!("{what} needs {}, which does not exist", absent.join(", ")))
}

/// The value of `name = "text"` in one of libvirt's configuration files.
fn option_of<'a>(file: &'a str, name: &str) -> Option<&'a str> {
    file.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        let text = value.trim().strip_prefix(['"', '\''])?;
        (key.trim() == name).then(|| text.split(['"', '\'']).next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(file: PathBuf, text: &str) {
        std::fs::create_dir_all(file.parent().expect("the path has a parent"))
            .expect("the folder is created");
        std::fs::write(file, text).expect("the file is written");
    }

    #[test]
    fn live_migration_by_tls_needs_certificates() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let etc = folder.path();
        let plain = LibvirtConfig::default();
        assert_eq!(missing_certificates(&plain, etc), Vec::<String>::new());
        let scheme = LibvirtConfig { live_migration_scheme: "tls".into(), ..plain.clone() };
        let uri = Some("qemu+tls://%s/system".to_owned());
        let by_uri = LibvirtConfig { live_migration_uri: uri, ..plain.clone() };
        for config in [&scheme, &by_uri] {
            let missing = missing_certificates(config, etc);
            assert!(missing.len() == 1 && missing[0].contains("pki/libvirt/private/clientkey.pem"));
        }
        let native = LibvirtConfig { live_migration_with_native_tls: true, ..scheme };
        let missing = missing_certificates(&native, etc);
        assert!(
            missing.len() == 2 && missing[1].contains("pki/qemu/server-key.pem"),
            "{missing:?}"
        );

        put(
            etc.join("libvirt/libvirtd.conf"),
            &format!(
                "#cert_file = \"/none\"\nca_file = \"{0}/own/ca\" # ours\ncert_file='{0}/own/cert'\n",
                etc.display()
            ),
        );
        for file in ["own/ca", "own/cert", "pki/libvirt/private/serverkey.pem"] {
            put(etc.join(file), "");
        }
        let missing = missing_certificates(&native, etc);
        assert!(!missing[0].contains("cacert") && !missing[0].contains("server"), "{missing:?}");
        for file in ["pki/libvirt/clientcert.pem", "pki/libvirt/private/clientkey.pem"] {
            put(etc.join(file), "");
        }
        assert_eq!(missing_certificates(&native, etc).len(), 1);
        put(etc.join("pki/libvirt-migrate/ca-cert.pem"), "");
        let missing = missing_certificates(&native, etc);
        assert!(missing[0].contains("libvirt-migrate/client-key.pem"), "{missing:?}");
        assert!(!missing[0].contains("ca-cert"), "{missing:?}");
        let conf = format!("migrate_tls_x509_cert_dir = \"{}/own\"\n", etc.display());
        put(etc.join("libvirt/qemu.conf"), &conf);
        for name in ["ca-cert", "server-cert", "server-key", "client-cert", "client-key"] {
            put(etc.join(format!("own/{name}.pem")), "");
        }
        assert_eq!(missing_certificates(&native, etc), Vec::<String>::new());
    }
}
