//! Tokens of an external Keystone; a second Kilonova server plays its part.

use super::{host, speaks};
use crate::kit::client::raw;
use crate::kit::cloud::{admin, login, password};
use crate::kit::environment::stderr;
use crate::kit::{Answer, Environment, Session};

fn section(url: &str, password: &str) -> String {
    format!(
        "[api]\nservices = placement\n[keystone_authtoken]\nauth_url = {url}/identity\n\
         username = admin\npassword = {password}\nproject_name = admin\n\
         user_domain_name = Default\nproject_domain_name = Default\n\
         memcached_servers = localhost:11211\n"
    )
}

#[test]
fn tokens_are_validated_by_the_external_keystone() {
    let elsewhere = Environment::new();
    let mut keystone = elsewhere.start();
    drop(admin(&elsewhere, &keystone));
    let secret = password(&elsewhere);
    let nobody = Session::anonymous(keystone.address);
    let token = login(&nobody, "admin", &secret, None);
    let other = login(&nobody, "admin", &secret, None);

    let place = Environment::configured(&section(&keystone.url(), &secret));
    let serve = place.start();
    let nobody = speaks(&Session::anonymous(serve.address));
    host(&nobody.token(&token), "h1", 4);
    assert!(!place.state().join("clouds.yaml").exists(), "Kilonova creates no admin of its own");

    let answer = nobody.token("made up").get("/resource_providers");
    let reply = answer.header("www-authenticate").map(str::to_owned);
    answer.refused(401);
    assert_eq!(reply, Some(format!("Keystone uri=\"{}/identity\"", keystone.url())));
    nobody.get("/").ok(200);

    keystone.kill();
    nobody.token(&token).get("/resource_providers").ok(200);
    let request = format!(
        "GET /resource_providers HTTP/1.1\r\nHost: here\r\nX-Auth-Token: {other}\r\n\
         Connection: close\r\n\r\n"
    );
    let away = Answer::parse("with Keystone away", &raw(serve.address, request.as_bytes()));
    assert!(away.refused(503).contains("temporarily unavailable"));
    assert!(!serve.log().contains(&secret), "the log shows no password");
}

#[test]
fn unusable_settings_are_refused_by_name() {
    let good = section("http://127.0.0.1:5000", "x");
    for (change, words) in [
        (
            good.replace("= placement", "= placement, identity"),
            "[keystone_authtoken] names an external",
        ),
        (good.replace("password = x\n", ""), "requires password too"),
        (good.clone() + "insecure = true\n", "insecure: certificates are always verified"),
        (good.clone() + "delay_auth_decision = true\n", "delay_auth_decision: a request"),
        (good.clone() + "auth_type = v3kerberos\n", "auth_type: v3kerberos is not supported"),
        (good.clone() + "cafile = /nowhere/ca.pem\n", "cafile /nowhere/ca.pem"),
        (good.replace("http://", "ftp://"), "must begin with http://"),
        ("[api]\nservices = placement\n".to_owned(), "[keystone_authtoken]"),
    ] {
        let place = Environment::configured(&change);
        let output = place.run("serve", &["--listen", "127.0.0.1:0"]);
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains(words), "{words:?} is not in {printed}");
    }
}
