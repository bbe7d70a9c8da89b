//! Startup: the first start writes files, later starts leave them unchanged, and a killed system
//! recovers completely.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::kit::cloud::{admin, password};
use crate::kit::environment::stderr;
use crate::kit::{Cloud, Environment};

/// Mode and text of the files that are written once; the server's address is left out.
fn written(state: &Path, address: SocketAddr) -> BTreeMap<String, (u32, String)> {
    let mut files = BTreeMap::new();
    let secrets =
        std::fs::read_dir(state).expect("the directory is readable").filter_map(|entry| {
            let name = entry
                .expect("the file is readable")
                .file_name()
                .into_string()
                .expect("the name is valid");
            let ends = |end: &str| name.ends_with(end);
            let secret =
                ends(".token") || ends(".key") || name == "openrc" || name == "clouds.yaml";
            secret.then_some(name)
        });
    for name in secrets {
        let path = state.join(&name);
        let mode = path.metadata().expect("the file is readable").permissions().mode() & 0o777;
        let text = std::fs::read_to_string(path).expect("the file is UTF-8");
        files.insert(name, (mode, text.replace(&address.to_string(), "ADDRESS")));
    }
    files
}

#[test]
fn the_first_start_writes_secrets_for_its_owner_and_the_second_changes_none() {
    for place in Environment::all() {
        let mut serve = place.start();
        assert!(serve.output.contains("first start"), "{}", serve.output);
        assert!(
            serve.output.contains("source ") && serve.output.contains("/openrc"),
            "{}",
            serve.output
        );
        let first = written(&place.state(), serve.address);
        for name in ["openrc", "clouds.yaml", "seal.key"] {
            assert!(first.contains_key(name), "{name} of {:?}", first.keys());
        }
        for (name, (mode, text)) in &first {
            assert_eq!(*mode, 0o600, "{name}");
            assert!(!text.is_empty(), "{name}");
        }
        let mode =
            |path: &Path| path.metadata().expect("the file exists").permissions().mode() & 0o777;
        assert_eq!(mode(&place.state()), 0o700);
        assert!(!place.state().join("keys").exists(), "the token keys are in the database");
        let token = admin(&place, &serve);
        serve.terminate();

        let again = place.start();
        assert!(!again.output.contains("first start"), "{}", again.output);
        // The port has changed, and the files were updated to it.
        assert_eq!(written(&place.state(), again.address), first);
        let mut same = token.clone();
        same.address = again.address;
        same.get("/compute/v2.1/servers").ok(200);
        admin(&place, &again).get("/compute/v2.1/servers").ok(200);
    }
}

#[test]
fn lost_credentials_are_not_made_up() {
    let place = Environment::new();
    let mut serve = place.start();
    let word = password(&place);
    serve.terminate();
    let clouds = std::fs::read(place.state().join("clouds.yaml")).expect("the file is readable");
    std::fs::remove_file(place.state().join("clouds.yaml")).expect("the file is removed");

    let mut again = place.start();
    assert!(!again.output.contains("first start"), "{}", again.output);
    assert!(!place.state().join("clouds.yaml").exists(), "a wrong password is not written");
    assert_eq!(password(&place), word, "openrc is unchanged");
    let log = again.log();
    assert!(log.contains("from the controller that created the cloud"), "{log}");
    admin(&place, &again).get("/compute/v2.1/servers").ok(200);
    again.terminate();
    std::fs::write(place.state().join("clouds.yaml"), clouds).expect("the file is restored");
    place.start();
}

/// A lost or misnamed database does not become a new cloud beside the files of the old one.
#[test]
fn an_empty_database_beside_a_clouds_files_is_refused() {
    for mut place in Environment::all() {
        place.start().terminate();
        let own = place.database.clone();
        let typo = format!("sqlite:///{}", place.file("typo.db").display());
        place.database = match &own {
            Some(_) => Environment::all().pop().and_then(|fresh| fresh.database),
            None => Some(typo),
        };
        let output = place.run("serve", &["--listen", "127.0.0.1:0"]);
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        for words in ["belongs to cloud", "the database is empty", "[database] connection"] {
            assert!(printed.contains(words), "{words:?} is not in: {printed}");
        }
        assert!(!place.file("typo.db").exists(), "nothing is created");
        place.database = own;
        place.start().terminate();
    }
}

/// A start on the database of another cloud changes neither the state directory nor that cloud.
#[test]
fn a_database_of_another_cloud_is_refused() {
    for mut place in Environment::all() {
        place.start().terminate();
        let id = std::fs::read(place.state().join("cloud")).expect("the file is readable");
        let other = Environment::new();
        other.start().terminate();
        let own = place.database.clone();
        let file = other.state().join("kilonova.db");
        place.database = Some(format!("sqlite:///{}", file.display()));
        let output = place.run("serve", &["--listen", "127.0.0.1:0"]);
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        for words in ["belongs to cloud", "but the database has cloud", "delete "] {
            assert!(printed.contains(words), "{words:?} is not in: {printed}");
        }
        let now = std::fs::read(place.state().join("cloud")).expect("the file is readable");
        assert_eq!(now, id);
        place.database = own;
        place.start().terminate();
        other.start().terminate();
    }
}

/// With the database and the sealing key, an operator gets the cloud back, also while it runs.
#[test]
fn a_lost_password_is_replaced() {
    for place in Environment::all() {
        let serve = place.start();
        let old = admin(&place, &serve);
        let refused = place.tool(&["admin", "password"]);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("openrc exists"), "{}", stderr(&refused));
        let word = password(&place);
        for name in ["openrc", "clouds.yaml"] {
            std::fs::remove_file(place.state().join(name)).expect("the file is removed");
        }
        let output = place.tool(&["admin", "password"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let new = password(&place);
        assert_ne!(new, word);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(!printed.contains(&new), "it is not printed");
        assert!(printed.contains("clouds.yaml on other controllers no longer work"), "{printed}");
        for (name, (mode, _)) in written(&place.state(), serve.address) {
            assert_eq!(mode, 0o600, "{name}");
        }
        admin(&place, &serve).get("/compute/v2.1/servers").ok(200);
        let begun = std::time::Instant::now();
        while old.get("/compute/v2.1/servers").status != 401 {
            assert!(begun.elapsed().as_secs() < 20, "the earlier token still works");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        drop(serve);
        let again = place.start();
        assert!(!again.output.contains("first start"), "{}", again.output);
        admin(&place, &again).get("/compute/v2.1/servers").ok(200);
    }
}

#[test]
fn a_killed_system_resumes_without_loss() {
    for cloud in Cloud::with_hosts() {
        let (flavor, image) = (cloud.flavor("small"), cloud.image("raw"));
        let (ann, _, _) = cloud.user("ann", "member");
        let server = cloud.server(&ann, "hers", &flavor, &image);
        let paths = [
            format!("/compute/v2.1/servers/{server}"),
            format!("/compute/v2.1/servers/{server}/os-instance-actions"),
            format!("/compute/v2.1/flavors/{flavor}"),
            format!("/image/v2/images/{image}"),
            format!("/placement/allocations/{server}"),
        ];
        let shown = |cloud: &Cloud| -> Vec<String> {
            let address = cloud.serve.address.to_string();
            let admin = &cloud.admin;
            paths
                .iter()
                .map(|path| admin.get(path).ok(200).to_string().replace(&address, ""))
                .collect()
        };
        let before = shown(&cloud);
        let Cloud { mut serve, place, .. } = cloud;
        serve.kill();

        let cloud = Cloud::new(place);
        assert_eq!(shown(&cloud), before);
        let file = cloud.admin.get(&format!("/image/v2/images/{image}/file"));
        assert_eq!(file.body, vec![7; 4096]);
        let mut ann = ann;
        ann.address = cloud.serve.address;
        cloud.wait_for(&ann, &server, "ACTIVE");
        ann.delete(&format!("/compute/v2.1/servers/{server}")).ok(204);
        let doctor = cloud.place.run("doctor", &[]);
        assert_eq!(doctor.status.code(), Some(0), "{}", String::from_utf8_lossy(&doctor.stdout));
    }
}
