//! The certificates that guests need to leave by TLS, and which of them are not there. It reads no
//! certificate: whether one is good, libvirt and QEMU say when they use it.

use std::path::{Path, PathBuf};

use crate::config::Config;

/// What `live_migration_scheme = tls` (or such a URI) and `live_migration_with_native_tls` need and this
/// host lacks, in words for an operator; `etc` is where the host's configuration is.
pub fn lacking(config: &Config, etc: &Path) -> Vec<String> {
    let mut lacking = Vec::new();
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
        lacking.extend(absent("qemu+tls between the hosts", &files));
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
        lacking.extend(absent("live_migration_with_native_tls", &files));
    }
    lacking
}

fn absent(what: &str, files: &[PathBuf]) -> Option<String> {
    let absent: Vec<String> =
        files.iter().filter(|file| !file.exists()).map(|file| file.display().to_string()).collect();
    (!absent.is_empty()).then(|| format!("{what} needs {}, which is not there", absent.join(", ")))
}

/// The text of an option of libvirt's configuration files: `name = "text"`.
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
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(file, text).expect("written");
    }

    #[test]
    fn whoever_leaves_by_tls_needs_certificates() {
        let folder = tempfile::tempdir().expect("a folder");
        let etc = folder.path();
        let plain = Config::default();
        assert_eq!(lacking(&plain, etc), Vec::<String>::new());
        let scheme = Config { live_migration_scheme: "tls".into(), ..plain.clone() };
        let uri = Some("qemu+tls://%s/system".to_owned());
        let by_uri = Config { live_migration_uri: uri, ..plain.clone() };
        for config in [&scheme, &by_uri] {
            let said = lacking(config, etc);
            assert!(said.len() == 1 && said[0].contains("pki/libvirt/private/clientkey.pem"));
        }
        let native = Config { live_migration_with_native_tls: true, ..scheme };
        let said = lacking(&native, etc);
        assert!(said.len() == 2 && said[1].contains("pki/qemu/server-key.pem"), "{said:?}");

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
        let said = lacking(&native, etc);
        assert!(!said[0].contains("cacert") && !said[0].contains("server"), "{said:?}");
        for file in ["pki/libvirt/clientcert.pem", "pki/libvirt/private/clientkey.pem"] {
            put(etc.join(file), "");
        }
        assert_eq!(lacking(&native, etc).len(), 1);
        put(etc.join("pki/libvirt-migrate/ca-cert.pem"), "");
        let said = lacking(&native, etc);
        assert!(said[0].contains("libvirt-migrate/client-key.pem"), "{said:?}");
        assert!(!said[0].contains("ca-cert"), "{said:?}");
        let conf = format!("migrate_tls_x509_cert_dir = \"{}/own\"\n", etc.display());
        put(etc.join("libvirt/qemu.conf"), &conf);
        for name in ["ca-cert", "server-cert", "server-key", "client-cert", "client-key"] {
            put(etc.join(format!("own/{name}.pem")), "");
        }
        assert_eq!(lacking(&native, etc), Vec::<String>::new());
    }
}
