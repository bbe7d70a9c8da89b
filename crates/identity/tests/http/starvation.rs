//! Logins are checked in a fair order on dedicated threads, and predictable failures cost no hash.
//! The tests count the hashes computed before a valid login, not the time.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use kilonova_identity::{IdentityOptions, Lockout};
use kilonova_wire::PeerAddress;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cloud::{Cloud, PASSWORD, Reply, by_name, clouds_with, mounted, options, send};

const ATTACKER: &str = "203.0.113.1";
const HOME: &str = "198.51.100.7";
/// Maximum number of hashing threads; each may be busy when a login arrives.
const THREADS: u64 = 8;
/// Hashes allowed before a valid login: those in progress and a few until its turn.
const FEW: u64 = THREADS + 4;

/// A hash takes tens of milliseconds, so that a queue builds up.
fn slow() -> IdentityOptions {
    IdentityOptions { hash_cost: argon2::Params::new(16 * 1024, 3, 1, None).unwrap(), ..options() }
}

async fn login_from(router: axum::Router, address: String, body: Value) -> Reply {
    let peer = PeerAddress(address.parse().unwrap());
    let request = Request::post("/identity/v3/auth/tokens")
        .header("host", "cloud.example")
        .extension(peer)
        .body(Body::from(body.to_string()));
    send(&router, request.unwrap()).await
}

/// Starts this many logins with different wrong passwords and waits until all have arrived.
async fn flood(
    cloud: &Cloud,
    clients: usize,
    address: impl Fn(usize) -> String,
    user: impl Fn(usize) -> String,
) -> JoinSet<Reply> {
    let before = cloud.identity.hash_statistics();
    let mut flood = JoinSet::new();
    // Passwords known to be wrong cost no hash.
    let wrong = uuid::Uuid::new_v4();
    for n in 0..clients {
        let body = by_name(&user(n), &format!("{wrong}-{n}"), Some("demo"));
        flood.spawn(login_from(cloud.router.clone(), address(n), body));
    }
    let come = async {
        loop {
            let now = cloud.identity.hash_statistics();
            let over = now.hashes - before.hashes + now.refused - before.refused;
            if now.waiting as u64 + over + THREADS >= clients as u64 {
                return now.waiting;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waiting =
        tokio::time::timeout(Duration::from_secs(60), come).await.expect("all logins arrive");
    assert!(waiting as u64 > FEW + 10, "{waiting} of {clients} wait");
    flood
}

/// The number of hashes computed before that of a valid login.
async fn cost(cloud: &Cloud, address: &str, body: Value) -> (u64, Reply) {
    let reply = login_from(cloud.router.clone(), address.into(), body).await;
    (cloud.identity.hash_statistics().passed, reply)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_wrong_logins_do_not_delay_a_valid_one() {
    for cloud in clouds_with(slow()).await {
        cloud.demo().await;
        let admin = cloud.admin().await;
        for n in 0..30 {
            cloud.make(&admin, "user", json!({"name": format!("u{n}"), "password": "x"})).await;
        }
        cloud.make(&admin, "user", json!({"name": "new", "password": "new"})).await;
        let from = |address: &'static str| move |_: usize| address.to_owned();
        let valid = || by_name("admin", PASSWORD, Some("admin"));

        // From another address, against one user and against many.
        let mut one = flood(&cloud, 100, from(ATTACKER), |_| "demo".into()).await;
        let (hashes, reply) = cost(&cloud, HOME, valid()).await;
        assert_eq!(reply.status, 201);
        assert!(hashes <= FEW, "{hashes} hashes were computed before a login from elsewhere");
        one.shutdown().await;
        let mut many = flood(&cloud, 100, from(ATTACKER), |n| format!("u{}", n % 30)).await;
        let (hashes, reply) = cost(&cloud, HOME, valid()).await;
        assert_eq!(reply.status, 201);
        assert!(hashes <= FEW, "{hashes} hashes were computed before a login from elsewhere");
        many.shutdown().await;

        // From a hundred addresses, against one user: another user who has not logged in before.
        let mut wide = flood(&cloud, 100, |n| format!("203.0.113.{n}"), |_| "demo".into()).await;
        let (hashes, reply) = cost(&cloud, HOME, by_name("new", "new", None)).await;
        assert_eq!(reply.status, 201);
        assert!(hashes <= FEW, "{hashes} hashes were computed before another user's login");
        wide.shutdown().await;

        // From the same address against the same user, who has logged in before.
        let demo = || by_name("demo", "demo", Some("demo"));
        assert_eq!(cloud.login(demo()).await.status, 201);
        let mut same = flood(&cloud, 100, from(ATTACKER), |_| "demo".into()).await;
        let (hashes, reply) = cost(&cloud, ATTACKER, demo()).await;
        assert_eq!(reply.status, 201);
        assert!(hashes <= FEW, "{hashes} hashes were computed before the user's own login");
        same.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_evicts_the_party_that_fills_it() {
    for cloud in clouds_with(IdentityOptions { logins_waiting: 50, ..slow() }).await {
        cloud.demo().await;
        let mut flood = flood(&cloud, 150, |_| ATTACKER.into(), |_| "demo".into()).await;
        let (hashes, reply) = cost(&cloud, HOME, by_name("admin", PASSWORD, None)).await;
        assert_eq!(reply.status, 201);
        assert!(hashes <= FEW, "{hashes}");
        let mut refused = 0;
        while let Some(reply) = flood.join_next().await {
            let reply = reply.unwrap();
            match reply.status.as_u16() {
                401 => {}
                429 => {
                    refused += 1;
                    let after: u64 =
                        reply.headers["retry-after"].to_str().unwrap().parse().unwrap();
                    assert!(after >= 1);
                    assert_eq!(reply.body["error"]["code"], 429);
                }
                other => panic!("{other}: {}", reply.body),
            }
        }
        assert!(refused > 0 && refused == cloud.identity.hash_statistics().refused, "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_of_disconnected_clients_cost_nothing() {
    for cloud in clouds_with(slow()).await {
        cloud.demo().await;
        let mut flood = flood(&cloud, 100, |_| ATTACKER.into(), |_| "demo".into()).await;
        flood.abort_all();
        let before = cloud.identity.hash_statistics().hashes;
        while flood.join_next().await.is_some() {}
        while cloud.identity.hash_statistics().waiting > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let spent = cloud.identity.hash_statistics().hashes - before;
        assert!(spent <= THREADS + 2, "{spent} hashes were computed for disconnected clients");
    }
}

#[tokio::test]
async fn predictable_failures_cost_no_hash() {
    for cloud in clouds_with(options()).await {
        cloud.demo().await;
        let admin = cloud.admin().await;
        let off = json!({"name": "off", "password": "off", "enabled": false});
        cloud.make(&admin, "user", off).await;
        cloud.make(&admin, "user", json!({"name": "keyless"})).await;
        let wrong = by_name("demo", "wrong", Some("demo"));
        assert_eq!(cloud.login(wrong.clone()).await.status, 401);
        let before = cloud.identity.hash_statistics().hashes;
        for body in [
            by_name("nobody", "x", None),
            by_name("off", "off", None),
            by_name("keyless", "x", None),
            by_name("demo", &"x".repeat(5_000), None),
            wrong,
            json!({"auth": {"identity": {"methods": ["application_credential"],
                "application_credential": {"id": "no", "secret": "x"}}}}),
            json!({"auth": {"identity": {"methods": ["password"], "password": 7}}}),
        ] {
            let status = cloud.login(body.clone()).await.status;
            assert!(status == 401 || status == 400, "{body}");
        }
        assert_eq!(cloud.identity.hash_statistics().hashes, before);
        assert_eq!(cloud.login(by_name("demo", "demo", None)).await.status, 201);
        assert_eq!(cloud.identity.hash_statistics().hashes, before + 1);
    }
}

#[tokio::test]
async fn an_account_is_locked_after_failures_on_every_controller() {
    let lockout = Lockout { attempts: 3, duration: Duration::from_millis(1500) };
    for cloud in clouds_with(IdentityOptions { lockout: Some(lockout), ..options() }).await {
        let (_, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let right = || by_name("demo", "demo", Some("demo"));
        let wrong = |n: usize| by_name("demo", &format!("wrong-{n}"), Some("demo"));
        for n in 0..2 {
            assert_eq!(cloud.login(wrong(n)).await.status, 401);
        }
        assert_eq!(cloud.login(right()).await.status, 201, "two failures do not lock the account");
        for n in 0..3 {
            assert_eq!(cloud.login(wrong(n)).await.status, 401);
        }
        let before = cloud.identity.hash_statistics().hashes;
        let reply = cloud.login(right()).await;
        assert_eq!(reply.status, 401, "the account is locked");
        let message = &reply.body["error"]["message"];
        assert_eq!(message, "The request you have made requires authentication.");
        assert_eq!(cloud.identity.hash_statistics().hashes, before);

        let locking = IdentityOptions { lockout: Some(lockout), ..options() };
        let other =
            kilonova_identity::Identity::open(cloud.store.clone(), cloud.keys.clone(), locking);
        let other = mounted(&other.await.unwrap());
        assert_eq!(login_from(other.clone(), HOME.into(), right()).await.status, 401);
        tokio::time::sleep(Duration::from_millis(1600)).await;
        assert_eq!(login_from(other, HOME.into(), right()).await.status, 201, "the lock expired");

        for n in 0..3 {
            cloud.login(wrong(10 + n)).await;
        }
        assert_eq!(cloud.login(right()).await.status, 401);
        let path = format!("/v3/users/{user}");
        let unlock = json!({"user": {"enabled": true}});
        assert_eq!(cloud.as_user(&admin, "PATCH", &path, unlock).await.status, 200);
        assert_eq!(cloud.login(right()).await.status, 201, "an admin unlocked the account");

        // Wrong passwords of a change count too, and a locked account changes nothing.
        let change = |old: &str| json!({"user": {"original_password": old, "password": "new"}});
        let password = format!("{path}/password");
        for n in 0..3 {
            let body = change(&format!("wrong-{n}"));
            assert_eq!(cloud.call("POST", &password, &[], body).await.status, 401);
        }
        assert_eq!(cloud.login(right()).await.status, 401, "the account is locked");
        assert_eq!(cloud.call("POST", &password, &[], change("demo")).await.status, 401);
        let unlock = json!({"user": {"enabled": true}});
        assert_eq!(cloud.as_user(&admin, "PATCH", &path, unlock).await.status, 200);
        assert_eq!(cloud.login(right()).await.status, 201, "the password is the same");

        let never = json!({"user": {"options": {"ignore_lockout_failure_attempts": true}}});
        let reply = cloud.as_user(&admin, "PATCH", &path, never).await;
        assert_eq!(reply.body["user"]["options"]["ignore_lockout_failure_attempts"], true);
        for n in 0..6 {
            cloud.login(wrong(20 + n)).await;
        }
        assert_eq!(cloud.login(right()).await.status, 201, "the user is exempt from lockout");
    }
}
