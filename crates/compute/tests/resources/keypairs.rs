//! Key pairs.

use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use x509_parser::extensions::GeneralName;

use crate::resources::kit::{ADMIN, ANN, Api, BOB, apis};

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMzndcA7TIh/GcN3SymR9QrlrfWCZOmWHUi/CxP2cNtm";
const FINGERPRINT: &str = "23:95:0f:0b:90:08:ee:2f:c2:df:5e:64:09:ad:6a:ab";

/// A certificate, and its SHA-1 by `openssl x509 -fingerprint`.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBcjCCARmgAwIBAgIUMihkoiKUkzz4S8eX3m3xJcRMz2MwCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDYW5uMCAXDTI2MTEyMzAyMTIyN1oYDzIxMjYxMDMwMDIxMjI3
WjAOMQwwCgYDVQQDDANhbm4wWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASajbwh
qCrUbtb3FSe7TCSaInFtflvRrj/Ca7PCHXRaD7An0mNaYdV1X7rI9ns2U6sCy1bm
mxVerPZpMjPbOm30o1MwUTAdBgNVHQ4EFgQUaYFN2cb9Vz4TlBLlqDFrCOpRlM0w
HwYDVR0jBBgwFoAUaYFN2cb9Vz4TlBLlqDFrCOpRlM0wDwYDVR0TAQH/BAUwAwEB
/zAKBggqhkjOPQQDAgNHADBEAiBFo3v/tPOhlMHo2H1Qj9LzZjPKf6YbNpL3dXBx
W3uopgIgfeNzcxElJJrjLBZpmoG/xmPKo9QW5lSCIfhQ+z806js=
-----END CERTIFICATE-----
";
const CERTIFICATE_SHA1: &str = "b1:07:db:32:87:a4:d4:57:0f:2f:28:f7:c4:a5:73:f1:7b:e3:a7:0e";

async fn add(api: &Api, version: &str, keypair: Value) -> crate::resources::kit::Answer {
    let body = Some(json!({"keypair": keypair}));
    api.call(ANN, version, "POST /os-keypairs", body).await
}

#[tokio::test]
async fn a_key_pair_is_added_shown_and_removed() {
    for api in apis().await {
        let made = add(&api, "2.10", json!({"name": "k", "public_key": KEY})).await.expect(201);
        assert_eq!(
            made,
            json!({"keypair": {
                "name": "k", "type": "ssh", "public_key": KEY, "fingerprint": FINGERPRINT,
                "user_id": "ann",
            }})
        );
        let list = api.get(ANN, "2.10", "/os-keypairs").await.expect(200);
        assert_eq!(
            list,
            json!({"keypairs": [{"keypair": {
                "name": "k", "type": "ssh", "public_key": KEY, "fingerprint": FINGERPRINT,
            }}]})
        );
        let one = api.get(ANN, "2.10", "/os-keypairs/k").await.expect(200);
        assert_eq!(one["keypair"]["deleted"], false);
        assert!(one["keypair"]["id"].is_i64());
        assert!(one["keypair"]["created_at"].as_str().is_some_and(|at| at.ends_with(".000000")));
        api.get(BOB, "2.10", "/os-keypairs/k")
            .await
            .refused(404, "Keypair k not found for user bob");
        add(&api, "2.10", json!({"name": "k", "public_key": KEY}))
            .await
            .refused(409, "Key pair 'k' already exists.");
        api.call(ANN, "2.10", "DELETE /os-keypairs/k", None).await.expect(204);
        api.call(ANN, "2.10", "DELETE /os-keypairs/k", None).await.refused(404, "user ann");
    }
}

#[tokio::test]
async fn older_microversions_show_fewer_keys() {
    for api in apis().await {
        let made = add(&api, "2.1", json!({"name": "k", "public_key": KEY})).await.expect(200);
        assert!(made["keypair"].get("type").is_none());
        let typed = json!({"name": "t", "public_key": KEY, "type": "ssh"});
        add(&api, "2.1", typed.clone()).await.refused(400, "type");
        add(&api, "2.2", typed).await.expect(201);
        add(&api, "2.9", json!({"name": "u", "public_key": KEY, "user_id": "ann"}))
            .await
            .refused(400, "user_id");
        api.call(ANN, "2.1", "DELETE /os-keypairs/k", None).await.expect(202);
    }
}

#[tokio::test]
async fn an_admin_may_manage_keys_of_other_users_from_2_10_on() {
    for api in apis().await {
        let body = json!({"keypair": {"name": "k", "public_key": KEY, "user_id": "ann"}});
        let path = "POST /os-keypairs";
        api.call(BOB, "2.10", path, Some(body.clone())).await.refused(403, "os-keypairs:create");
        api.call(ADMIN, "2.10", path, Some(body)).await.expect(201);
        let list = api.get(ADMIN, "2.10", "/os-keypairs?user_id=ann").await.expect(200);
        assert_eq!(list["keypairs"][0]["keypair"]["name"], "k");
        let list = api.get(ADMIN, "2.9", "/os-keypairs?user_id=ann").await.expect(200);
        assert_eq!(list, json!({"keypairs": []}));
        for query in ["user_id=ann&user_id=bob", "user_id=ann"] {
            let path = format!("/os-keypairs/k?{query}");
            api.get(ADMIN, "2.10", &path).await.expect(200);
            api.get(ANN, "2.10", &path).await.expect(200);
        }
        let body = json!({"keypair": {"name": "own", "public_key": KEY, "user_id": ""}});
        let made = api.call(BOB, "2.10", path, Some(body)).await.expect(201);
        assert_eq!(made["keypair"]["user_id"], "bob", "the caller");
        api.get(BOB, "2.10", "/os-keypairs/own?user_id=").await.expect(200);
        api.get(BOB, "2.10", "/os-keypairs?user_id=ann").await.refused(403, "os-keypairs:index");
        api.get(BOB, "2.10", "/os-keypairs/k?user_id=ann").await.refused(403, "os-keypairs:show");
        let path = "DELETE /os-keypairs/k?user_id=ann";
        api.call(BOB, "2.10", path, None).await.refused(403, "os-keypairs:delete");
        api.call(ADMIN, "2.10", path, None).await.expect(204);
    }
}

#[tokio::test]
async fn listings_page_from_2_35_on() {
    for api in apis().await {
        for name in ["b", "a", "c"] {
            add(&api, "2.92", json!({"name": name, "public_key": KEY})).await.expect(201);
        }
        let names = |list: &Value| -> String {
            let list = list["keypairs"].as_array().expect("the answer has a list");
            list.iter().filter_map(|pair| pair["keypair"]["name"].as_str()).collect()
        };
        let all = api.get(ANN, "2.34", "/os-keypairs?limit=1").await.expect(200);
        assert_eq!(names(&all), "abc");
        let page = api.get(ANN, "2.35", "/os-keypairs?limit=1&marker=a").await.expect(200);
        assert_eq!(names(&page), "b");
        assert_eq!(
            page["keypairs_links"][0]["href"],
            "http://cloud:1234/compute/v2.1/os-keypairs?limit=1&marker=b"
        );
        api.get(ANN, "2.35", "/os-keypairs?marker=z").await.refused(400, "Marker z");
        api.get(ANN, "2.75", "/os-keypairs?a=b").await.refused(400, "'a' was unexpected");
    }
}

#[tokio::test]
async fn invalid_input_is_refused() {
    for api in apis().await {
        for (keypair, part) in [
            (json!({"public_key": KEY}), "name"),
            (json!({"name": "", "public_key": KEY}), "name"),
            (json!({"name": " k", "public_key": KEY}), "name"),
            (json!({"name": "a@b", "public_key": KEY}), "name"),
            (json!({"name": "x".repeat(256), "public_key": KEY}), "name"),
            (
                json!({"name": "k", "public_key": "ssh-rsa nonsense"}),
                "failed to generate fingerprint",
            ),
            (json!({"name": "k", "public_key": 5}), "public_key"),
            (json!({"name": "k", "public_key": KEY, "type": "pgp"}), "type"),
            (json!({"name": "k", "public_key": KEY, "type": "x509"}), "generate X509 fingerprint"),
            (json!({"name": "k", "public_key": CERTIFICATE}), "failed to generate fingerprint"),
            (json!({"name": "k", "public_key": ""}), "failed to generate fingerprint"),
            (json!({"name": "k", "public_key": null}), "public_key"),
            (json!({"name": " k"}), "name"),
            (json!({"name": "k", "public_key": KEY, "size": 1}), "size"),
        ] {
            add(&api, "2.10", keypair).await.refused(400, part);
        }
        for kind in ["ssh", "x509"] {
            let new = json!({"name": "k", "type": kind});
            add(&api, "2.92", new).await.refused(400, "public_key");
        }
        add(&api, "2.92", json!({"name": "a@b.c", "public_key": KEY})).await.expect(201);
    }
}

#[tokio::test]
async fn the_quota_limits_key_pairs() {
    for api in apis().await {
        let quota = json!({"quota_set": {"key_pairs": 1}});
        api.admin("2.57", "PUT /os-quota-sets/red", quota).await.expect(200);
        add(&api, "2.92", json!({"name": "a", "public_key": KEY})).await.expect(201);
        add(&api, "2.92", json!({"name": "b", "public_key": KEY}))
            .await
            .refused(403, "Quota exceeded, too many key pairs.");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_quota_holds_for_concurrent_requests() {
    for api in apis().await {
        let quota = json!({"quota_set": {"key_pairs": 3}});
        api.admin("2.57", "PUT /os-quota-sets/red", quota).await.expect(200);
        let api = std::sync::Arc::new(api);
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                let api = std::sync::Arc::clone(&api);
                tokio::spawn(async move {
                    let keypair = json!({"name": format!("k{number}"), "public_key": KEY});
                    add(&api, "2.92", keypair).await.status.as_u16()
                })
            })
            .collect();
        let mut statuses = Vec::new();
        for task in tasks {
            statuses.push(task.await.expect("the task does not panic"));
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 201, 201, 403, 403, 403, 403, 403]);
    }
}

/// Checks an SSH key pair, also with `ssh-keygen` if it is installed.
fn check_key(made: &Value) {
    let private = made["private_key"].as_str().expect("the answer has a private key");
    let public = made["public_key"].as_str().expect("the answer has a public key");
    assert!(private.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n"), "a file for ssh -i");
    assert!(private.ends_with("-----END OPENSSH PRIVATE KEY-----\n"));
    let key = ssh_key::PrivateKey::from_openssh(private).expect("the key is valid");
    assert_eq!(key.public_key().to_openssh().expect("the key is valid"), public);
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let file = folder.path().join("k");
    std::fs::write(&file, private).expect("the file is written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mode).expect("the mode is set");
    match Command::new("ssh-keygen").arg("-y").arg("-f").arg(&file).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), public);
        }
        Err(error) => kilonova_testkit::skip_part(format!("ssh-keygen: {error}")),
    }
}

#[tokio::test]
async fn a_key_pair_is_made_for_requests_without_a_key_below_2_92() {
    for api in apis().await {
        let mut fingerprints = Vec::new();
        for (version, name, status) in [("2.1", "a", 200), ("2.2", "b", 201), ("2.91", "c", 201)] {
            let made = add(&api, version, json!({"name": name})).await.expect(status);
            let made = &made["keypair"];
            check_key(made);
            assert_eq!(made["user_id"], "ann");
            assert_eq!(made.get("type").is_some(), version != "2.1");
            let shown = api.get(ANN, "2.10", &format!("/os-keypairs/{name}")).await.expect(200);
            let shown = &shown["keypair"];
            assert_eq!(shown.get("private_key"), None, "the private key is not stored");
            assert_eq!(shown["type"], "ssh");
            for field in ["fingerprint", "public_key"] {
                assert_eq!(shown[field], made[field]);
            }
            fingerprints.push(made["fingerprint"].to_string());
        }
        fingerprints.sort_unstable();
        fingerprints.dedup();
        assert_eq!(fingerprints.len(), 3, "each key pair is new");
        let list = api.get(ANN, "2.35", "/os-keypairs").await.expect(200);
        assert_eq!(list["keypairs"].as_array().map(Vec::len), Some(3));
        assert!(!list.to_string().contains("PRIVATE"), "{list}");
        let own = json!({"name": "own", "public_key": KEY});
        let own = add(&api, "2.2", own).await.expect(201);
        assert_eq!(own["keypair"].get("private_key"), None);
        add(&api, "2.91", json!({"name": "a"})).await.refused(409, "'a' already exists");
        add(&api, "2.1", json!({"name": "t", "type": "ssh"})).await.refused(400, "type");
        let quota = json!({"quota_set": {"key_pairs": 4}});
        api.admin("2.57", "PUT /os-quota-sets/red", quota).await.expect(200);
        add(&api, "2.91", json!({"name": "d"})).await.refused(403, "too many key pairs");
    }
}

#[tokio::test]
async fn an_admin_makes_key_pairs_for_others_from_2_10_on() {
    for api in apis().await {
        let body = json!({"keypair": {"name": "k", "user_id": "ann"}});
        let path = "POST /os-keypairs";
        api.call(ADMIN, "2.9", path, Some(body.clone())).await.refused(400, "user_id");
        api.call(BOB, "2.10", path, Some(body.clone())).await.refused(403, "os-keypairs:create");
        let made = api.call(ADMIN, "2.10", path, Some(body)).await.expect(201);
        assert_eq!(made["keypair"]["user_id"], "ann");
        check_key(&made["keypair"]);
        api.get(ANN, "2.10", "/os-keypairs/k").await.expect(200);
    }
}

#[tokio::test]
async fn x509_key_pairs() {
    for api in apis().await {
        let own = json!({"name": "own", "type": "x509", "public_key": CERTIFICATE});
        let added = add(&api, "2.92", own).await.expect(201);
        let added = &added["keypair"];
        assert_eq!(
            (&added["fingerprint"], &added["type"]),
            (&json!(CERTIFICATE_SHA1), &json!("x509"))
        );
        assert_eq!(added["public_key"], CERTIFICATE);

        let made = add(&api, "2.2", json!({"name": "made", "type": "x509"})).await.expect(201);
        let made = &made["keypair"];
        let text = made["public_key"].as_str().expect("the certificate is PEM");
        let (_, pem) =
            x509_parser::pem::parse_x509_pem(text.as_bytes()).expect("the certificate is PEM");
        let certificate = pem.parse_x509().expect("the certificate is valid");
        assert_eq!(certificate.subject().to_string(), "CN=ann");
        let usage = certificate
            .extended_key_usage()
            .expect("the data can be read")
            .expect("the entry exists");
        assert!(usage.value.client_auth);
        let names = certificate
            .subject_alternative_name()
            .expect("the data can be read")
            .expect("the entry exists");
        let [GeneralName::OtherName(kind, upn)] = names.value.general_names.as_slice() else {
            panic!("{names:?}");
        };
        assert_eq!(kind.to_id_string(), "1.3.6.1.4.1.311.20.2.3");
        assert!(upn.ends_with(b"ann@localhost"), "{upn:?}");
        assert_eq!(made["fingerprint"].as_str().map(str::len), Some(59));
        let file = made["private_key"].as_str().expect("the key is base64");
        let file = STANDARD.decode(file).expect("the key is base64");
        let has = |part: &[u8]| file.windows(part.len()).any(|window| window == part);
        assert!(has(&pem.contents), "the certificate is in the file");
        check_file(&file, text);

        let list = api.get(ANN, "2.2", "/os-keypairs").await.expect(200);
        let kinds: Vec<_> = (0..2).map(|n| &list["keypairs"][n]["keypair"]["type"]).collect();
        assert_eq!(kinds, ["x509", "x509"]);
        assert!(!list.to_string().contains("private_key"));
    }
}

/// Reads a PKCS #12 file without a password with `openssl`, if it is installed. `openssl` verifies the
/// checksum; the key and the serial number in the file must match the certificate.
fn check_file(file: &[u8], certificate: &str) {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("pfx"), file).expect("the file is written");
    std::fs::write(at("pem"), certificate).expect("the file is written");
    let openssl = |words: &str| {
        let words = words.replace("@", &format!("{}/", folder.path().display()));
        Command::new("openssl").args(words.split(' ')).output()
    };
    if let Err(error) = openssl("version") {
        return kilonova_testkit::skip_part(format!("openssl: {error}"));
    }
    let run = |words: &str| {
        let output = openssl(words).expect("openssl runs");
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    run("pkcs12 -in @pfx -passin pass: -nodes -out @all");
    assert_eq!(run("pkey -in @all -pubout"), run("x509 -in @pem -noout -pubkey"));
    assert_eq!(run("x509 -in @all -noout -serial"), run("x509 -in @pem -noout -serial"));
}
