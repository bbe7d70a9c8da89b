//! Two controllers on one database: a change at one of them empties the other's token cache.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use kilonova_changes::Follower;
use kilonova_identity::Identity;
use kilonova_store::System;
use serde_json::{Value, json};

use super::cloud::{clouds, mounted, options, send};

#[tokio::test]
async fn a_token_revoked_at_one_controller_is_refused_by_the_other() {
    for cloud in clouds().await {
        if cloud.store.system() != System::Postgres {
            continue;
        }
        let identity =
            Identity::open(cloud.store.clone(), cloud.keys.clone(), options()).await.unwrap();
        let other = mounted(&identity);
        let status = async |token: &str| {
            let request = Request::get("/identity/v3/auth/projects")
                .header("host", "cloud.example:8000")
                .header("x-auth-token", token)
                .body(Body::empty())
                .unwrap();
            send(&other, request).await.status
        };
        let mut follower = Follower::open(&cloud.store).await.unwrap();
        follower.subscribe(Arc::new(identity.clone()));
        let admin = cloud.admin().await;
        let revoked = cloud.admin().await;
        let demo = json!({"name": "demo", "password": "demo"});
        let user = cloud.make(&admin, "user", demo).await;
        for token in [&admin, &revoked] {
            assert_eq!(status(token).await, 200);
        }
        follower.poll().await.unwrap();
        let headers = [("x-auth-token", &*admin), ("x-subject-token", &*revoked)];
        let answer = cloud.call("DELETE", "/v3/auth/tokens", &headers, Value::Null).await;
        assert_eq!(answer.status, 204);
        follower.poll().await.unwrap();
        assert_eq!(status(&revoked).await, 401);
        assert_eq!(status(&admin).await, 200);

        let other_token = cloud.admin().await;
        assert_eq!(status(&other_token).await, 200);
        let path = format!("/v3/users/{user}");
        assert_eq!(cloud.as_user(&admin, "DELETE", &path, Value::Null).await.status, 204);
        let entries = follower.poll().await.unwrap();
        assert!(format!("{entries:?}").contains("Identity"), "{entries:?}");
        assert_eq!(status(&other_token).await, 200);
    }
}
