//! Ways in which Cyborg loses, duplicates or strands accelerators, provoked here without effect.
//! Racing binds, incomplete patches and lists are tested in `api_arqs`.

use std::time::Duration;

use http::StatusCode;
use kilonova_accelerator::reconcile;
use kilonova_store::testing::{CrashPlan, Death};
use serde_json::json;

use crate::common::arqs::{ABSENT, PATH, SERVER, bind, request, unbind};
use crate::common::{Api, audit, count, fake, report, stores, vgpu};

const OWNED: &str = "SELECT COUNT(*) FROM attach_handles WHERE state = 'owned'";
const BOUND: &str = "SELECT COUNT(*) FROM arqs WHERE state = 'Bound'";
const OTHER: &str = "5a1cf5f3-6e5e-4c1b-9d52-6b3ac1a2a8e4";
const ADMIN: &str = "0c0d3f3a4b6d4d0fa3d0e9b5a6f7c8d9";

#[tokio::test]
async fn an_evacuation_by_an_admin_leaves_the_requests_to_their_owner() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(2)]).await.unwrap();
        let owner = Api::admin(&store).with_roles("member");
        let arqs = request(&owner, "FPGA", "1").await;
        let as_admin = Api::admin(&store).of_project(ADMIN).with_service();
        let bound = as_admin.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        assert_eq!(bound.status, StatusCode::ACCEPTED, "{name}");
        let seen = owner.get(&format!("{PATH}?instance={SERVER}")).await;
        assert_eq!(seen.body["arqs"][0]["project_id"], "p1", "{name}");
        let of_instance = format!("{PATH}?instance={SERVER}");
        let gone = owner.with_service().delete(&of_instance).await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT, "{name}");
        assert_eq!(count(&store, OWNED).await, 0, "{name}: no handle leaks");
        assert_eq!(count(&store, "SELECT COUNT(*) FROM arqs").await, 0, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

/// Runs one request in a process that crashes at its write, and repeats it in the next process.
async fn die_and_repeat(what: &str, death: Death) {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(3)]).await.unwrap();
        let nova = Api::admin(&store).with_service();
        let arqs = request(&nova, "FPGA", "2").await;
        if what != "bind" {
            nova.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        }
        let dying = Api { store: store.with_crash_plan(CrashPlan::at(0, death)), ..nova.at("2.0") };
        let ask = async |api: &Api| match what {
            "bind" => api.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await.status,
            "unbind" => api.patch(PATH, unbind(&arqs[0])).await.status,
            _ => api.delete(&format!("{PATH}?instance={SERVER}")).await.status,
        };
        let died = ask(&dying).await;
        assert_eq!(died, StatusCode::INTERNAL_SERVER_ERROR, "{name} {what} {death:?}");
        let done = death == Death::AfterCommit;
        let (before, after) = match what {
            "bind" => (0, 2),
            "unbind" => (2, 1),
            _ => (2, 0),
        };
        let now = if done { after } else { before };
        assert_eq!(count(&store, OWNED).await, now, "{name} {what} {death:?}");
        assert_eq!(count(&store, BOUND).await, now, "{name} {what} {death:?}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name} {what} {death:?}");
        let again = ask(&nova).await;
        let refused = done && what == "bind";
        assert_eq!(again.is_success(), !refused, "{name} {what} {death:?}: {again}");
        assert_eq!(count(&store, OWNED).await, after, "{name} {what} {death:?}");
        let doubled = "SELECT COUNT(*) FROM (SELECT address FROM attach_handles
            WHERE state = 'owned' GROUP BY address HAVING COUNT(*) > 1) t";
        assert_eq!(count(&store, doubled).await, 0, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name} {what} {death:?}");
    }
}

#[tokio::test]
async fn a_crash_inside_bind_unbind_or_delete_leaves_all_or_nothing() {
    for what in ["bind", "unbind", "delete"] {
        for death in [Death::BeforeCommit, Death::AfterCommit] {
            die_and_repeat(what, death).await;
        }
    }
}

#[tokio::test]
async fn orphaned_requests_expire_and_release_their_profile() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(2)]).await.unwrap();
        let nova = Api::admin(&store).with_service();
        let orphans = request(&nova, "FPGA", "1").await;
        let held = request(&nova, "FPGA", "2").await;
        nova.patch(PATH, bind(&held, specs[0].id, SERVER)).await;
        let profile = "/v2/device_profiles/dp-FPGA-1";
        assert_eq!(nova.delete(profile).await.status, StatusCode::CONFLICT, "{name}");
        let day = Duration::from_secs(86_400);
        let kept = reconcile::expire(&store, day, day).await.unwrap();
        assert_eq!((kept.requests, kept.changes), (0, 0), "{name}: recent requests are kept");
        let gone = reconcile::expire(&store, Duration::ZERO, day).await.unwrap();
        assert_eq!(gone.requests, 1, "{name}: bound requests are kept");
        let shown = nova.get(&format!("{PATH}/{}", orphans[0])).await;
        assert_eq!(shown.status, StatusCode::NOT_FOUND, "{name}");
        assert_eq!(nova.delete(profile).await.status, StatusCode::NO_CONTENT, "{name}");
        assert_eq!(count(&store, OWNED).await, 2, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_vgpu_on_a_dead_host_is_released_at_once() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![vgpu("0000:84:00.0", 2)]).await.unwrap();
        let nova = Api::admin(&store).with_service();
        let arqs = request(&nova, "VGPU", "2").await;
        nova.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        let begun = std::time::Instant::now();
        let gone = nova.delete(&format!("{PATH}?instance={SERVER}")).await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT, "{name}");
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{name}: the delete does not wait for a node"
        );
        assert_eq!(count(&store, OWNED).await, 0, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn an_impossible_bind_leaves_no_trace() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(4)]).await.unwrap();
        let nova = Api::admin(&store).with_service();
        let held = request(&nova, "FPGA", "1").await;
        nova.patch(PATH, bind(&held, specs[0].id, OTHER)).await;
        let arqs = request(&nova, "FPGA", "2").await;
        let absent = bind(&arqs, ABSENT.parse().unwrap(), SERVER);
        assert_eq!(nova.patch(PATH, absent).await.status, StatusCode::NOT_FOUND, "{name}");
        // The second request names an instance that already has accelerators.
        let mut mixed = bind(&arqs[..1], specs[0].id, SERVER);
        let second = bind(&arqs[1..], specs[0].id, OTHER);
        mixed.as_object_mut().unwrap().extend(second.as_object().unwrap().clone());
        let refused = nova.patch(PATH, mixed).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{name}");
        assert!(refused.fault().contains(OTHER), "{name}: {}", refused.fault());
        for arq in &arqs {
            let shown = nova.get(&format!("{PATH}/{arq}")).await;
            assert_eq!(shown.body["state"], "Initial", "{name}");
            assert_eq!(shown.body["instance_uuid"], json!(null), "{name}");
        }
        assert_eq!(count(&store, OWNED).await, 1, "{name}");
        let bound = nova.patch(PATH, bind(&arqs, specs[0].id, SERVER)).await;
        assert_eq!(bound.status, StatusCode::ACCEPTED, "{name}: the request can still be bound");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_malformed_profile_affects_no_other_request() {
    for (name, store, _guard) in stores().await {
        let api = Api::admin(&store);
        let groups = json!([{"resources:FPGA": "1"}]);
        let poison = json!([{"name": "dpbad", "uuid": "zzz", "groups": groups}]);
        let refused = api.post("/v2/device_profiles", poison).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{name}");
        assert_eq!(refused.fault(), "Expected a uuid but received zzz.");
        let listed = api.get("/v2/device_profiles").await;
        assert_eq!(listed.body, json!({"device_profiles": []}), "{name}");
        let odd =
            api.of_project("not a uuid").post(PATH, json!({"device_profile_name": "x"})).await;
        assert_eq!(odd.status, StatusCode::NOT_FOUND, "{name}");
        assert_eq!(api.get(PATH).await.status, StatusCode::OK, "{name}");
    }
}
