//! The allowed dependencies between crates: the table of docs/ARCHITECTURE.md, "Code map". A
//! dependency that the table does not name is a finding, and so is a name in the table that no
//! crate uses.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Error, Sources};

/// Each crate with the crates that it may use outside tests.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "kilonova",
        &[
            "access",
            "accelerator",
            "changes",
            "cinder",
            "compute",
            "compute-app",
            "compute-db",
            "compute-nodes",
            "compute-scheduler",
            "dashboard",
            "enroll",
            "flow",
            "glance",
            "identity",
            "ids",
            "image",
            "keystone",
            "network",
            "neutron",
            "node",
            "node-api",
            "node-link",
            "pki",
            "placement",
            "policy",
            "program",
            "seal",
            "store",
            "wire",
        ],
    ),
    (
        "kilonova-agent",
        &[
            "disks",
            "host-network",
            "hypervisor",
            "ids",
            "libvirt",
            "node",
            "node-api",
            "node-link",
            "pki",
            "program",
            "volumes",
        ],
    ),
    (
        "kilonova-bench",
        &[
            "accelerator",
            "changes",
            "compute-db",
            "compute-scheduler",
            "engine",
            "ids",
            "node",
            "node-api",
            "node-link",
            "packing",
            "placement",
            "program",
            "store",
            "wire",
        ],
    ),
    (
        "accelerator",
        &[
            "access",
            "engine",
            "ids",
            "keystone",
            "node-api",
            "packing",
            "placement",
            "store",
            "policy",
            "wire",
        ],
    ),
    ("access", &["policy", "wire"]),
    ("changes", &["store"]),
    ("cinder", &["ids", "keystone", "wire"]),
    (
        "compute",
        &[
            "accelerator",
            "access",
            "compute-app",
            "compute-db",
            "compute-scheduler",
            "flow",
            "guest-metadata",
            "ids",
            "image",
            "node-api",
            "store",
            "topology",
            "wire",
        ],
    ),
    (
        "compute-app",
        &[
            "accelerator",
            "access",
            "changes",
            "cinder",
            "compute-db",
            "compute-scheduler",
            "engine",
            "flow",
            "glance",
            "guest-metadata",
            "ids",
            "image",
            "keystone",
            "network",
            "neutron",
            "node-api",
            "placement",
            "policy",
            "store",
            "threads",
            "topology",
            "wire",
        ],
    ),
    (
        "compute-db",
        &[
            "accelerator",
            "changes",
            "ids",
            "network",
            "node-api",
            "placement",
            "store",
            "topology",
            "wire",
        ],
    ),
    (
        "compute-nodes",
        &[
            "accelerator",
            "compute-app",
            "compute-db",
            "compute-scheduler",
            "engine",
            "ids",
            "image",
            "node-api",
            "placement",
            "store",
            "topology",
            "wire",
        ],
    ),
    ("compute-scheduler", &["compute-db", "engine", "ids", "packing", "store"]),
    ("dashboard", &["access", "compute-app", "ids", "seal", "wire"]),
    ("devices", &["ids", "node-api", "topology"]),
    ("disks", &["guest-metadata", "hypervisor", "ids", "node-api"]),
    ("engine", &["ids"]),
    ("enroll", &["access", "changes", "ids", "node-api", "pki", "seal", "store", "wire"]),
    ("flow", &["ids", "store"]),
    ("glance", &["ids", "keystone"]),
    ("guest-metadata", &["ids", "node-api"]),
    ("host-network", &["hypervisor", "ids", "node", "node-api"]),
    ("hypervisor", &["ids", "node-api"]),
    ("identity", &["access", "changes", "policy", "seal", "store", "wire"]),
    ("ids", &[]),
    ("image", &["access", "ids", "image-store", "store", "policy", "threads", "wire"]),
    ("image-store", &["threads"]),
    ("keystone", &["pki", "wire"]),
    ("libvirt", &["devices", "disks", "hypervisor", "ids", "node-api", "topology"]),
    ("network", &["access", "changes", "ids", "node-api", "store", "policy", "wire"]),
    ("neutron", &["ids", "keystone", "wire"]),
    (
        "node",
        &["devices", "guest-metadata", "hypervisor", "ids", "node-api", "packing", "topology"],
    ),
    ("node-api", &["ids"]),
    ("node-link", &["ids", "node-api", "pki"]),
    ("pki", &["ids"]),
    ("packing", &[]),
    ("placement", &["access", "changes", "engine", "ids", "policy", "store", "threads", "wire"]),
    ("policy", &[]),
    ("program", &["devices", "ids"]),
    ("seal", &["store"]),
    ("store", &["ids", "threads"]),
    ("store-tests", &["store"]),
    ("testkit", &["changes", "store"]),
    ("threads", &[]),
    ("topology", &[]),
    ("volumes", &["ids", "node", "node-api"]),
    ("wire", &["ids"]),
    ("wire-tests", &["compute-app", "wire"]),
    ("xtask", &[]),
];

/// Crates that only tests may use.
const TESTS_ONLY: &[&str] = &["testkit", "store-tests", "wire-tests"];

/// Crates outside this repository that only the named crates may use, with the reason.
const SOLE_USERS: &[(&str, &[&str], &str)] = &[
    ("virt", &["libvirt"], "only the agent links libvirt"),
    ("virt-sys", &["libvirt"], "only the agent links libvirt"),
    ("rusqlite", &["store"], "statements reach a database only through the store"),
    ("tokio-postgres", &["store", "testkit"], "statements reach a database only through the store"),
];

/// Crates outside this repository that a pure crate may not use.
const IMPURE: &[&str] = &["tokio", "axum", "reqwest", "hyper", "rusqlite", "rand"];

/// Crates without I/O, clock or randomness of their own.
const PURE: &[&str] =
    &["engine", "guest-metadata", "packing", "policy", "ids", "node-api", "topology"];

/// Compares each crate's manifest with the table.
///
/// # Errors
/// None at present.
pub fn check(sources: &Sources) -> Result<Vec<String>, Error> {
    let table: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, uses)| (*name, uses.iter().copied().collect())).collect();
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for file in sources.files.iter().filter(|file| file.path.ends_with("/Cargo.toml")) {
        let Some(name) = file.package() else { continue };
        seen.insert(name.to_owned());
        let Some(allowed) = table.get(name) else {
            findings.push(format!("{}: the crate {name} is not in the table of xtask", file.path));
            continue;
        };
        let used = dependencies(&file.text);
        for (line, dependency) in &used {
            let at = format!("{}:{line}", file.path);
            match dependency.strip_prefix("kilonova-") {
                Some(ours) if TESTS_ONLY.contains(&ours) => {
                    findings.push(format!("{at}: {ours} is for [dev-dependencies] only"));
                }
                Some(ours) if !allowed.contains(ours) => {
                    findings.push(format!("{at}: {name} may not depend on {ours}"));
                }
                Some(_) => {}
                None => {
                    findings.extend(foreign(name, dependency).map(|why| format!("{at}: {why}")))
                }
            }
        }
        for stale in allowed.iter().filter(|ours| {
            !used.iter().any(|(_, used)| used.strip_prefix("kilonova-") == Some(**ours))
        }) {
            findings.push(format!(
                "{}: the table allows {stale}, which {name} does not use",
                file.path
            ));
        }
    }
    for (name, _) in ALLOWED.iter().filter(|(name, _)| !seen.contains(*name)) {
        findings.push(format!("xtask/src/rules/dependencies.rs: there is no crate {name}"));
    }
    Ok(findings)
}

fn foreign(name: &str, dependency: &str) -> Option<String> {
    if let Some((_, users, why)) = SOLE_USERS.iter().find(|(held, ..)| *held == dependency)
        && !users.contains(&name)
    {
        return Some(format!("{dependency} belongs to {}: {why}", users.join(", ")));
    }
    (PURE.contains(&name) && IMPURE.contains(&dependency))
        .then(|| format!("{name} is pure and may not depend on {dependency}"))
}

/// The names under `[dependencies]` with their lines.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut names = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.trim() == "[dependencies]";
        } else if inside && let Some(end) = line.find(['.', ' ', '=']) {
            names.push((index + 1, &line[..end]));
        }
    }
    names.retain(|(_, name)| !name.is_empty() && !name.starts_with('#'));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::File;

    fn manifest(name: &str, dependencies: &str) -> Sources {
        let path = format!("crates/{name}/Cargo.toml");
        Sources::of(vec![File { path, text: format!("[dependencies]\n{dependencies}") }])
    }

    fn findings(name: &str, dependencies: &str) -> Vec<String> {
        let mut all = check(&manifest(name, dependencies)).expect("the table is well-formed");
        all.retain(|finding| {
            finding.starts_with("crates/") && !finding.contains("the table allows")
        });
        all
    }

    #[test]
    fn a_dependency_outside_the_table_is_found() {
        let found =
            findings("engine", "kilonova-ids.workspace = true\nkilonova-store.workspace = true\n");
        assert_eq!(found, ["crates/engine/Cargo.toml:3: engine may not depend on store"]);
    }

    #[test]
    fn a_pure_crate_has_no_runtime() {
        let found = findings("engine", "tokio = \"1\"\n");
        assert_eq!(
            found,
            ["crates/engine/Cargo.toml:2: engine is pure and may not depend on tokio"]
        );
    }

    #[test]
    fn only_the_store_binds_a_database() {
        assert_eq!(findings("image", "rusqlite.workspace = true\n").len(), 1);
        assert_eq!(findings("store", "rusqlite.workspace = true\n").len(), 0);
    }

    #[test]
    fn a_test_kit_is_for_tests() {
        assert_eq!(findings("image", "kilonova-testkit.workspace = true\n").len(), 1);
    }
}
