//! Reports all problems of a configuration file at once, and the locations that it names. `serve`
//! stops at the first problem; `doctor` shows all.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{CommandLine, External, Settings, identity, image, node, sources};
use super::{
    File, KNOWN, auth, cinder, compute, cors, database, devices, front, glance, keystone, network,
    neutron, nova, policy, seal, services, vendordata,
};
use crate::failure::Failure;
use kilonova_program::logs::LogFormat;

/// The locations that a file names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ConfiguredLocations {
    /// The state directory.
    pub state_dir: Option<PathBuf>,
    /// The database URL.
    pub database: Option<String>,
}

/// All problems of a file, ordered by line.
pub fn problems(path: &Path) -> Vec<String> {
    let (file, strange) = match File::look(path, KNOWN) {
        Ok(read) => read,
        Err(failure) => return vec![failure.to_string()],
    };
    let mut all: Vec<String> = strange.iter().map(ToString::to_string).collect();
    let mut note = |read: Result<(), Failure>| {
        if let Err(failure) = read {
            all.push(failure.to_string());
        }
    };
    let keystone = keystone::read(&file);
    let auth = auth(&file);
    let (image, mut has_glance) = (image::read(&file), false);
    if let (Ok(keystone), Ok(image)) = (&keystone, &image) {
        let glance = glance::read(&file, keystone.as_ref(), image.snapshots.total);
        has_glance = glance.as_ref().is_ok_and(Option::is_some);
        note(glance.map(drop));
        note(vendordata::read(&file, keystone.as_ref()).map(drop));
        note(cinder::read(&file, keystone.as_ref()).map(drop));
    }
    if let (Ok(keystone), Ok(auth)) = (&keystone, &auth) {
        let neutron = neutron::read(&file, keystone.as_ref());
        let external = External {
            identity: keystone.is_some(),
            image: has_glance,
            network: neutron.as_ref().is_ok_and(Option::is_some),
        };
        note(neutron.map(drop));
        note(services(&file, *auth, external).map(drop));
    }
    note(keystone.map(drop));
    note(identity::read(&file).map(drop));
    note(auth.map(drop));
    note(file.parse::<SocketAddr>("api", "listen", "ADDRESS:PORT").map(drop));
    note(database::url(&file, None).map(drop));
    note(database::read(&file).map(drop));
    note(policy::read(&file).map(drop));
    note(cors::read(&file).map(drop));
    note(front::read(&file).map(drop));
    note(devices::options(&file).map(drop));
    note(sources::read(&file).map(drop));
    note(sources::aliases(&file).map(drop));
    note(nova::read(&file).map(drop));
    note(node::read(&file, None, Vec::new()).map(drop));
    note(compute::read(&file).map(drop));
    note(network::read(&file).map(drop));
    note(image.map(drop));
    note(seal::read(&file).map(drop));
    note(file.parse::<bool>("DEFAULT", "debug", "true or false").map(drop));
    note(file.parse::<LogFormat>("DEFAULT", "log_format", LogFormat::EXPECTED).map(drop));
    if all.is_empty() {
        // Problems that result from a combination of options.
        if let Err(failure) = Settings::read(Some(path), CommandLine::default()) {
            all.push(failure.to_string());
        }
    }
    let prefix = format!("{}:", path.display());
    let line = |text: &String| -> Option<usize> {
        text.strip_prefix(&prefix)?.split(':').next()?.trim().parse().ok()
    };
    all.sort_by_key(line);
    all.dedup();
    all
}

/// The locations that a file names, even if it has problems.
pub fn places(path: &Path) -> ConfiguredLocations {
    let Ok((file, _)) = File::look(path, KNOWN) else { return ConfiguredLocations::default() };
    ConfiguredLocations {
        state_dir: file.path("DEFAULT", "state_path"),
        database: file
            .get("database", "connection")
            .map(|url| database::whole(&file, url.to_owned())),
    }
}

/// True if a file contains a password, even in an option without effect.
pub fn holds_secrets(path: &Path) -> bool {
    let Ok((file, _)) = File::look(path, KNOWN) else { return false };
    database::parameters_hold_a_password(&file)
        || file.options().any(|(_, option, text)| !text.is_empty() && is_secret(option, text))
}

/// True for the value of an option such as `inject_password`.
fn is_flag(text: &str) -> bool {
    matches!(text.to_lowercase().as_str(), "true" | "false")
}

fn is_secret(option: &str, text: &str) -> bool {
    // scheme://user:password@host/…
    let in_url = text.split_once("://").is_some_and(|(_, rest)| {
        let user = rest.split('/').next().unwrap_or_default();
        user.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
            || rest.contains("password=")
    });
    let is_named =
        ["password", "_secret", "_secret_key", "secret_id", "fixed_key", "token", "root_token_id"]
            .iter()
            .any(|end| option.ends_with(end));
    in_url || is_named && !is_flag(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("k.conf");
        std::fs::write(&path, text).expect("the file is written");
        (folder, path)
    }

    #[test]
    fn all_problems_are_reported_in_line_order() {
        let text = "[DEFAULT]\ndebug = perhaps\nstate_path = /s\n[api]\nlisten = here\n\
                    auth_strategy = none\nlissten = x\n[pci]\ndevice_spec = {\"vendor\": \"1\"}\n\
                    alias = {\"name\": \"a\"}\n[gpus]\nmany = yes\n";
        let (_folder, path) = file(text);
        let found = problems(&path);
        let parts = [
            "k.conf:2: [DEFAULT] debug",
            "k.conf:5: [api] listen",
            "k.conf:6: [api] auth_strategy",
            "k.conf:7: [api] lissten: this option is not known",
            "k.conf:9: [pci] device_spec",
            "k.conf:10: [pci] alias: Invalid PCI alias definition: alias \"a\": it names no device",
            "k.conf:12: [gpus] many: this group is not known",
        ];
        assert_eq!(found.len(), parts.len(), "{found:#?}");
        for (message, part) in found.iter().zip(parts) {
            assert!(message.contains(part), "{part}: {found:#?}");
        }
        assert_eq!(places(&path).state_dir, Some("/s".into()));
        let (_folder, path) = file("[DEFAULT]\ndebug = true\n");
        assert_eq!(problems(&path), Vec::<String>::new());
        let message = problems(Path::new("/nowhere/k.conf"));
        assert!(
            message.len() == 1 && message[0].contains("cannot read /nowhere/k.conf"),
            "{message:?}"
        );
    }

    #[test]
    fn a_problem_of_the_combination_is_reported_too() {
        let text = "[api]\nauth_strategy = noauth2\nlisten = 0.0.0.0:1\n";
        let (_folder, path) = file(text);
        let found = problems(&path);
        assert!(found.len() == 1 && found[0].contains("only listens on a loopback"), "{found:?}");
    }

    #[test]
    fn passwords_are_found_in_urls_too() {
        for (text, secret) in [
            ("[nova]\npassword = x\n", true),
            ("[neutron]\npassword = x\n", true),
            ("[neutron]\nmetadata_proxy_shared_secret = x\n", true),
            ("[glance_store]\ns3_store_secret_key = x\n", true),
            ("[DEFAULT]\ntransport_url = rabbit://user:x@host/\n", true),
            ("[node]\ntoken = true\n", false),
            ("[libvirt]\ninject_password = false\n", false),
            ("[libvirt]\nrbd_secret_uuid = 1\n", false),
            ("[database]\nconnection = postgresql://kn:pw@h/d\n", true),
            ("[database]\nconnection = postgresql://kn@h/d\n", false),
            ("[database]\nconnection = postgresql://h/d?user=kn&password=x\n", true),
            ("[database]\nconnection = sqlite:////var/k.db\n", false),
            ("[database]\nconnection_parameters = a=b&password=x\n", true),
            ("[database]\nconnection_parameters = sslmode=require\n", false),
        ] {
            let (_folder, path) = file(text);
            assert_eq!(holds_secrets(&path), secret, "{text}");
        }
    }
}
