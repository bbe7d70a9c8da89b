//! The upgrade of a database from before groups, trusts and the catalog's resources: its users can log
//! in and keep their roles.

use argon2::{Algorithm, Argon2, PasswordHash, PasswordHasher as _, Version};
use kilonova_identity::{Identity, MIGRATIONS, TokenKeys};
use kilonova_store::{Error, Store, params};
use serde_json::{Value, json};

use crate::cloud::{PASSWORD, by_name, mounted, options, send, token_of};

const ADMIN: &str = "a0000000000000000000000000000001";
const ANN: &str = "a0000000000000000000000000000002";
const CREDENTIAL: &str = "c0000000000000000000000000000001";
/// Roles of the older version, which had no `manager`, and two that differ only by case.
const ROLES: [(&str, &str); 5] = [
    ("b0000000000000000000000000000001", "admin"),
    ("b0000000000000000000000000000002", "member"),
    ("b0000000000000000000000000000003", "reader"),
    ("b0000000000000000000000000000004", "Observer"),
    ("b0000000000000000000000000000005", "observer"),
];
const PROJECTS: [(&str, &str); 2] =
    [("d0000000000000000000000000000001", "admin"), ("d0000000000000000000000000000002", "demo")];

/// A project that the older version deleted, and kept as a default project.
const DELETED: &str = "d0000000000000000000000000000003";

fn hash(secret: &str) -> String {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, options().hash_cost);
    let hash: PasswordHash =
        argon2.hash_password(secret.as_bytes()).expect("the password is hashed");
    hash.to_string()
}

/// Inserts the rows of the older version.
async fn fill(store: &Store) {
    let (admin, ann, secret) = (hash(PASSWORD), hash("annpass"), hash("s3cret"));
    let filled = store.write(move |tx| {
        for (id, name) in PROJECTS {
            tx.execute(
                "INSERT INTO identity_projects (id, name, description, enabled, tags, extra)
                 VALUES (?1, ?2, '', 1, '[]', '{}')",
                params![id, name],
            )?;
        }
        for (id, name, hash, default) in
            [(ADMIN, "admin", &admin, PROJECTS[0].0), (ANN, "ann", &ann, DELETED)]
        {
            tx.execute(
                "INSERT INTO identity_users (id, name, enabled, password_hash, default_project_id,
                     tokens_valid_from, extra)
                 VALUES (?1, ?2, 1, ?3, ?4, 0, '{\"email\": \"a@b\"}')",
                params![id, name, hash, default],
            )?;
        }
        for (id, name) in ROLES {
            tx.execute("INSERT INTO identity_roles (id, name) VALUES (?1, ?2)", params![id, name])?;
        }
        for pair in ROLES[..3].windows(2) {
            tx.execute(
                "INSERT INTO identity_implied_roles (prior_id, implied_id) VALUES (?1, ?2)",
                params![pair[0].0, pair[1].0],
            )?;
        }
        for (user, project, role) in [
            (ADMIN, PROJECTS[0].0, ROLES[0].0),
            (ANN, PROJECTS[1].0, ROLES[1].0),
            (ANN, PROJECTS[1].0, ROLES[4].0),
        ] {
            tx.execute(
                "INSERT INTO identity_assignments (user_id, project_id, role_id)
                 VALUES (?1, ?2, ?3)",
                params![user, project, role],
            )?;
        }
        tx.execute(
            "INSERT INTO identity_credentials (id, name, user_id, project_id, secret_hash,
                 unrestricted) VALUES (?1, 'robot', ?2, ?3, ?4, 0)",
            params![CREDENTIAL, ANN, PROJECTS[1].0, &secret],
        )?;
        tx.execute(
            "INSERT INTO identity_credential_roles (credential_id, role_id) VALUES (?1, ?2)",
            params![CREDENTIAL, ROLES[1].0],
        )?;
        Ok::<_, Error>(())
    });
    filled.await.expect("the older rows are written");
}

struct Upgraded {
    router: axum::Router,
}

impl Upgraded {
    async fn ask(&self, token: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let request = axum::http::Request::builder()
            .method(method)
            .uri(format!("/identity{path}"))
            .header("host", "cloud.example:8000")
            .header("x-auth-token", token)
            .body(axum::body::Body::from(body.to_string()));
        let reply = send(&self.router, request.expect("the request is valid")).await;
        (reply.status.as_u16(), reply.body)
    }

    /// A token, and the names of its roles.
    async fn login(&self, body: Value) -> (String, Vec<String>) {
        let request = axum::http::Request::post("/identity/v3/auth/tokens")
            .header("host", "cloud.example:8000")
            .body(axum::body::Body::from(body.to_string()));
        let reply = send(&self.router, request.expect("the request is valid")).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        let roles = reply.body["token"]["roles"].as_array().expect("the token has roles").iter();
        let names = roles
            .map(|role| role["name"].as_str().expect("the role has a name").to_owned())
            .collect();
        (token_of(&reply), names)
    }
}

#[tokio::test]
async fn users_of_the_older_version_log_in_with_their_roles() {
    assert_eq!(MIGRATIONS[1].name, "identity-2-groups-trusts-catalog");
    for (name, store, _guard) in kilonova_testkit::stores(&[&MIGRATIONS[..1]]).await {
        fill(&store).await;
        store
            .migrate(&[kilonova_changes::MIGRATIONS, MIGRATIONS].concat())
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let keys = TokenKeys::in_memory().expect("the keys are generated");
        let identity =
            Identity::open(store.clone(), keys, options()).await.expect("the service opens");
        let new = identity.bootstrap("another password").await.expect("the bootstrap succeeds");
        assert!(!new, "{name}: the admin exists and keeps the password");
        let cloud = Upgraded { router: mounted(&identity) };

        let (admin, roles) = cloud.login(by_name("admin", PASSWORD, Some("admin"))).await;
        assert_eq!(roles, ["admin", "manager", "member", "reader"], "{name}");
        let (_, roles) = cloud.login(by_name("ann", "annpass", Some("demo"))).await;
        assert_eq!(roles, ["member", "observer", "reader"], "{name}");
        let mut system = by_name("admin", PASSWORD, None);
        system["auth"]["scope"] = json!({"system": {"all": true}});
        let (_, roles) = cloud.login(system).await;
        assert_eq!(roles, ["admin", "manager", "member", "reader"], "{name}: roles on the system");
        let (robot, roles) = cloud
            .login(json!({"auth": {"identity": {"methods": ["application_credential"],
                "application_credential": {"id": CREDENTIAL, "secret": "s3cret"}}}}))
            .await;
        assert_eq!(roles, ["member", "reader"], "{name}: roles of the application credential");
        let (status, _) =
            cloud.ask(&robot, "DELETE", &format!("/v3/users/{ANN}"), Value::Null).await;
        assert_eq!(status, 403, "{name}");

        let (_, user) = cloud.ask(&admin, "GET", &format!("/v3/users/{ANN}"), Value::Null).await;
        assert_eq!((&user["user"]["email"], &user["user"]["options"]), (&json!("a@b"), &json!({})));
        // A migration changes no rows that a controller of the older version uses.
        assert_eq!(user["user"]["default_project_id"], DELETED, "{name}");
        let path = format!("/v3/users/{ADMIN}");
        let (_, user) = cloud.ask(&admin, "GET", &path, Value::Null).await;
        assert_eq!(user["user"]["default_project_id"], PROJECTS[0].0, "{name}");
        // Default roles are protected. A third role whose name differs only by case is refused.
        for (role, status) in [(ROLES[0].0, 403), (ROLES[4].0, 204)] {
            let path = format!("/v3/roles/{role}");
            assert_eq!(cloud.ask(&admin, "DELETE", &path, Value::Null).await.0, status, "{name}");
        }
        let third = json!({"role": {"name": "OBSERVER"}});
        assert_eq!(cloud.ask(&admin, "POST", "/v3/roles", third).await.0, 409, "{name}");
        let group = json!({"group": {"name": "g"}});
        let (status, made) = cloud.ask(&admin, "POST", "/v3/groups", group).await;
        assert_eq!(status, 201, "{name}: {made}");
        let group = made["group"]["id"].as_str().expect("the group has an id");
        for path in [
            format!("/v3/groups/{group}/users/{ANN}"),
            format!("/v3/projects/{}/groups/{group}/roles/{}", PROJECTS[0].0, ROLES[2].0),
        ] {
            assert_eq!(cloud.ask(&admin, "PUT", &path, Value::Null).await.0, 204, "{path}");
        }
        let (_, roles) = cloud.login(by_name("ann", "annpass", Some("admin"))).await;
        assert_eq!(roles, ["reader"], "{name}: roles of the group");
    }
}
