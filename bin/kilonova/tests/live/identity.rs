//! Identity through the real server: every service refuses revoked credentials from the next request
//! on.

use serde_json::{Value, json};

use crate::kit::cloud::{credentials, id, login};
use crate::kit::{Answer, Cloud, Session};

const SERVERS: &str = "/compute/v2.1/servers";
const TOKENS: &str = "/identity/v3/auth/tokens";

fn assert_unauthorized(who: &Session) {
    for path in
        [SERVERS, "/image/v2/images", "/accelerator/v2/device_profiles", "/identity/v3/users"]
    {
        who.get(path).refused(401);
    }
}

#[test]
fn a_deleted_or_disabled_user_has_no_token_any_more() {
    for cloud in Cloud::all() {
        let (ann, ann_id, project) = cloud.user("ann", "member");
        let (bob, bob_id, bob_project) = cloud.user("bob", "member");
        ann.get(SERVERS).ok(200);
        bob.get(SERVERS).ok(200);
        cloud.admin.delete(&format!("/identity/v3/users/{ann_id}")).ok(204);
        assert_unauthorized(&ann);
        let again = credentials("ann", "ann-word", Some(&project));
        cloud.anonymous().post(TOKENS, &again).refused(401);

        let path = format!("/identity/v3/users/{bob_id}");
        cloud.admin.ask("PATCH", &path, &json!({"user": {"enabled": false}})).ok(200);
        assert_unauthorized(&bob);
        cloud.admin.ask("PATCH", &path, &json!({"user": {"enabled": true}})).ok(200);
        assert_unauthorized(&bob);
        let fresh = login(&cloud.anonymous(), "bob", "bob-word", Some(&bob_project));
        cloud.anonymous().token(&fresh).get(SERVERS).ok(200);
    }
}

#[test]
fn a_disabled_project_has_no_users() {
    for cloud in Cloud::all() {
        let (ann, _, project) = cloud.user("ann", "member");
        let path = format!("/identity/v3/projects/{project}");
        ann.get(SERVERS).ok(200);
        cloud.admin.ask("PATCH", &path, &json!({"project": {"enabled": false}})).ok(200);
        assert_unauthorized(&ann);
        let again = credentials("ann", "ann-word", Some(&project));
        cloud.anonymous().post(TOKENS, &again).refused(401);
        cloud.admin.ask("PATCH", &path, &json!({"project": {"enabled": true}})).ok(200);
        ann.get(SERVERS).ok(200);
        cloud.admin.delete(&path).ok(204);
        assert_unauthorized(&ann);
    }
}

#[test]
fn role_changes_take_effect_at_once() {
    for cloud in Cloud::all() {
        let (ann, user, project) = cloud.user("ann", "member");
        let role = |name: &str| {
            let role = cloud.role(name);
            format!("/identity/v3/projects/{project}/users/{user}/roles/{role}")
        };
        let flavor =
            |name: &str| json!({"flavor": {"name": name, "ram": 1, "vcpus": 1, "disk": 1}});
        ann.post("/compute/v2.1/flavors", &flavor("a")).refused(403);
        cloud.admin.put(&role("admin"), &json!({})).ok(204);
        ann.post("/compute/v2.1/flavors", &flavor("b")).ok(200);
        cloud.admin.delete(&role("admin")).ok(204);
        ann.post("/compute/v2.1/flavors", &flavor("c")).refused(403);
        ann.get(SERVERS).ok(200);
        cloud.admin.delete(&role("member")).ok(204);
        assert_unauthorized(&ann);
    }
}

#[test]
fn a_new_password_ends_the_old_tokens() {
    for cloud in Cloud::all() {
        let (ann, user, project) = cloud.user("ann", "member");
        let path = format!("/identity/v3/users/{user}/password");
        let body = |old: &str| json!({"user": {"original_password": old, "password": "new-word"}});
        ann.post(&path, &body("wrong")).refused(401);
        ann.get(SERVERS).ok(200);
        ann.post(&path, &body("ann-word")).ok(204);
        assert_unauthorized(&ann);
        cloud
            .anonymous()
            .post(TOKENS, &credentials("ann", "ann-word", Some(&project)))
            .refused(401);
        login(&cloud.anonymous(), "ann", "new-word", Some(&project));
    }
}

fn by_credential(cloud: &Cloud, made: &Value) -> Answer {
    let login = json!({"auth": {"identity": {"methods": ["application_credential"],
        "application_credential": {"id": made["id"], "secret": made["secret"]}}}});
    cloud.anonymous().post(TOKENS, &login)
}

#[test]
fn an_application_credential_is_as_strong_as_its_user_and_its_roles() {
    for cloud in Cloud::all() {
        let (ann, user, project) = cloud.user("ann", "admin");
        let path = format!("/identity/v3/users/{user}/application_credentials");
        let make = |body: Value| {
            let made = ann.post(&path, &json!({"application_credential": body})).ok(201);
            made["application_credential"].clone()
        };
        let reader = make(json!({"name": "read", "roles": [{"name": "reader"}]}));
        let full = make(json!({"name": "full"}));
        let answer = by_credential(&cloud, &reader);
        let token = answer.ok(201);
        assert_eq!(token["token"]["project"]["id"], project.as_str());
        let key =
            cloud.anonymous().token(answer.header("x-subject-token").expect("a token is present"));
        key.get(SERVERS).ok(200);
        let flavor = json!({"flavor": {"name": "f", "ram": 1, "vcpus": 1, "disk": 1}});
        key.post("/compute/v2.1/flavors", &flavor).refused(403);
        key.post(&path, &json!({"application_credential": {"name": "child"}})).refused(403);
        key.delete(&format!("{path}/{}", id(&full))).refused(403);
        let rescope = json!({"auth": {"identity": {"methods": ["token"], "token":
            {"id": answer.header("x-subject-token")}}, "scope": {"project": {"id": project}}}});
        cloud.anonymous().post(TOKENS, &rescope).refused(403);

        let answer = by_credential(&cloud, &full);
        answer.ok(201);
        let key =
            cloud.anonymous().token(answer.header("x-subject-token").expect("a token is present"));
        key.post("/compute/v2.1/flavors", &flavor).ok(200);
        ann.delete(&format!("{path}/{}", id(&full))).ok(204);
        assert_unauthorized(&key);
        by_credential(&cloud, &full).refused(401);

        let role = cloud.role("admin");
        let grant = format!("/identity/v3/projects/{project}/users/{user}/roles/{role}");
        cloud.admin.delete(&grant).ok(204);
        by_credential(&cloud, &reader).refused(401);
    }
}

#[test]
fn an_unscoped_token_opens_identity_and_nothing_else() {
    for cloud in Cloud::all() {
        let (_, _, project) = cloud.user("ann", "member");
        let mut login = credentials("ann", "ann-word", None);
        login["auth"]["scope"] = json!("unscoped");
        let answer = cloud.anonymous().post(TOKENS, &login);
        let token = answer.ok(201);
        assert!(token["token"].get("project").is_none() && token["token"].get("catalog").is_none());
        let who =
            cloud.anonymous().token(answer.header("x-subject-token").expect("a token is present"));
        let own = who.get("/identity/v3/auth/projects").ok(200);
        assert_eq!(own["projects"][0]["id"], project.as_str());
        for path in [
            "/compute/v2.1/os-services",
            "/placement/resource_providers",
            "/accelerator/v2/devices",
        ] {
            who.get(path).refused(403);
        }
        let boot = json!({"server": {"name": "s", "flavorRef": "f", "imageRef": project,
            "networks": "none"}});
        let refused = who.post(SERVERS, &boot);
        assert!(matches!(refused.status, 400 | 401 | 403), "{}", refused.text());
        let refused = who.post("/image/v2/images", &json!({"name": "i"}));
        assert!(matches!(refused.status, 401 | 403), "{}", refused.text());
        let scope = json!({"auth": {"identity": {"methods": ["token"], "token":
            {"id": answer.header("x-subject-token")}}, "scope": {"project": {"id": project}}}});
        let scoped = cloud.anonymous().post(TOKENS, &scope);
        assert_eq!(scoped.ok(201)["token"]["project"]["id"], project.as_str());
    }
}
