//! Accelerator requests: the life cycle as an external Nova drives it, and its refusals.

use http::StatusCode;
use kilonova_accelerator::ledger;
use kilonova_ids::{ConsumerId, ProviderId, ServerId};
use kilonova_node_api::{DeviceKind, HandleSlot};
use kilonova_placement::World;
use serde_json::{Value, json};

use crate::common::arqs::{ABSENT, PATH, SERVER, bind, request, steps, unbind};
use crate::common::{Api, HOST, audit, count, device, fake, host, report, stores, vgpu};

const OWNED: &str = "SELECT COUNT(*) FROM attach_handles WHERE state = 'owned'";

#[tokio::test]
async fn create_bind_unbind_rebind_delete() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(2)]).await.unwrap();
        let user = Api::admin(&store).with_roles("member");
        let nova = user.with_service();
        let arqs = request(&user, "FPGA", "1").await;
        let path = format!("{PATH}/{}", arqs[0]);
        let initial = user.get(&path).await.body;
        assert_eq!(initial["state"], "Initial", "{name}");
        assert_eq!(initial["device_profile_name"], "dp-FPGA-1");
        assert_eq!(initial["project_id"], "p1");
        assert_eq!(initial["attach_handle_type"], "");
        assert_eq!(initial["attach_handle_info"], json!({}));
        assert_eq!(initial["attach_handle_uuid"], Value::Null);
        assert_eq!(initial["instance_uuid"], Value::Null);

        let body = bind(&arqs, specs[0].id, SERVER);
        let bound = nova.patch(PATH, body.clone()).await;
        assert_eq!((bound.status, bound.body), (StatusCode::ACCEPTED, Value::Null), "{name}");
        let listed = user.get(&format!("{PATH}?instance={SERVER}&bind_state=resolved")).await;
        let shown = &listed.body["arqs"][0];
        assert_eq!(shown["state"], "Bound", "{name}");
        assert_eq!(shown["hostname"], HOST);
        assert_eq!(shown["instance_uuid"], SERVER);
        assert_eq!(shown["device_rp_uuid"], specs[0].id.to_string());
        assert_eq!(shown["attach_handle_type"], "TEST_PCI");
        assert_eq!(
            shown["attach_handle_info"],
            json!({"domain": "0000", "bus": "0c", "device": "00", "function": "0"})
        );
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");

        let again = nova.patch(PATH, body.clone()).await;
        assert_eq!(again.status, StatusCode::BAD_REQUEST, "{name}");
        assert!(again.fault().contains("already has accelerator requests"));
        let off = nova.patch(&path, unbind(&arqs[0])).await;
        assert_eq!(off.status, StatusCode::ACCEPTED, "{name}");
        let unbound = user.get(&path).await.body;
        assert_eq!(unbound["state"], "Unbound", "{name}");
        assert_eq!(unbound["hostname"], Value::Null);
        assert_eq!(count(&store, OWNED).await, 0, "{name}");

        assert_eq!(nova.patch(PATH, body).await.status, StatusCode::ACCEPTED, "{name}");
        for _ in 0..2 {
            let gone = nova.delete(&format!("{PATH}?instance={SERVER}")).await;
            assert_eq!(gone.status, StatusCode::NO_CONTENT, "{name}");
        }
        assert_eq!(count(&store, OWNED).await, 0, "{name}");
        assert_eq!(user.get(PATH).await.body, json!({"arqs": []}));
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn handles_are_shown_in_cyborgs_form() {
    for (name, store, _guard) in stores().await {
        let slots = vec![HandleSlot::Pci { address: "0000:05:00.1".into() }];
        let card = device("0000:05:00.0", DeviceKind::Pci, "card", "CUSTOM_PCI", slots);
        let slots = vec![HandleSlot::Mdev { mdev_type: "mtty-2".into(), count: 1 }];
        let mtty = device("mtty_mtty", DeviceKind::Mdev, "mtty", "CUSTOM_MTTY", slots);
        let cards = vec![card, vgpu("0000:84:00.0", 1), mtty];
        let specs = report(&store, cards).await.unwrap();
        let api = Api::admin(&store).with_service();
        let bdf = |bus: &str, function: &str| json!({"domain": "0000", "bus": bus, "device": "00", "function": function});
        let mut mdev = bdf("84", "0");
        mdev["asked_type"] = "nvidia-35".into();
        mdev["vgpu_mark"] = "nvidia-35_0".into();
        let virt = json!({"parent": "mtty_mtty", "asked_type": "mtty-2", "vgpu_mark": "mtty-2_0"});
        let expected = [
            ("CUSTOM_PCI", "PCI", bdf("05", "1")),
            ("VGPU", "MDEV", mdev),
            ("CUSTOM_MTTY", "MDEV", virt),
        ];
        for (spec, (class, kind, info)) in specs.iter().zip(expected) {
            let arqs = request(&api, class, "1").await;
            let server = ServerId::new_v4().to_string();
            api.patch(PATH, bind(&arqs, spec.id, &server)).await;
            let shown = api.get(&format!("{PATH}/{}", arqs[0])).await.body;
            assert_eq!(shown["attach_handle_type"], kind, "{name}");
            assert_eq!(shown["attach_handle_info"], info, "{name}");
        }
    }
}

#[tokio::test]
async fn a_bind_is_all_or_nothing() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(2)]).await.unwrap();
        let api = Api::admin(&store).with_service();
        let three = request(&api, "FPGA", "3").await;
        let short = api.patch(PATH, bind(&three, specs[0].id, SERVER)).await;
        assert_eq!(short.status, StatusCode::NOT_FOUND, "{name}");
        assert!(short.fault().starts_with("AttachHandle not found"), "{name}");
        let mut mixed = bind(&three[..1], specs[0].id, SERVER);
        mixed[ABSENT] = steps(specs[0].id, SERVER);
        let absent = api.patch(PATH, mixed).await;
        assert_eq!(absent.fault(), format!("ExtArq not found with uuid={ABSENT}"), "{name}");
        let nowhere = api.patch(PATH, bind(&three[..1], ProviderId::new_v4(), SERVER)).await;
        assert_eq!(nowhere.status, StatusCode::NOT_FOUND, "{name}");
        assert!(nowhere.fault().starts_with("Deployable not found with resource provider uuid="));
        let mut elsewhere = bind(&three[..1], specs[0].id, SERVER);
        elsewhere[&three[0]][0]["value"] = "cmp2".into();
        assert_eq!(api.patch(PATH, elsewhere).await.status, StatusCode::BAD_REQUEST, "{name}");
        let states = api.get(PATH).await.body;
        assert!(states["arqs"].as_array().unwrap().iter().all(|arq| arq["state"] == "Initial"));
        assert_eq!(count(&store, OWNED).await, 0, "{name}");
        assert_eq!(api.patch(PATH, bind(&three[..2], specs[0].id, SERVER)).await.status, 202);
        let bound_elsewhere = api.patch(PATH, bind(&three[..1], specs[0].id, ABSENT)).await;
        assert_eq!(bound_elsewhere.status, StatusCode::CONFLICT, "{name}");
        assert!(bound_elsewhere.fault().starts_with("Bad state: Bound"), "{name}");
    }
}

#[tokio::test]
async fn concurrent_binds_give_an_arq_one_handle_and_an_instance_one_bind() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(16)]).await.unwrap();
        let api = Api::admin(&store).with_service();
        let provider = specs[0].id;
        let one = request(&api, "FPGA", "1").await;
        let many = request(&api, "FPGA", "8").await;
        let patch = |body: Value| {
            let api = api.with_service();
            tokio::spawn(async move { api.patch(PATH, body).await.status })
        };
        let one_arq: Vec<_> =
            (0..8).map(|_| patch(bind(&one, provider, &ServerId::new_v4().to_string()))).collect();
        let one_server: Vec<_> = many
            .iter()
            .map(|arq| patch(bind(std::slice::from_ref(arq), provider, SERVER)))
            .collect();
        for tasks in [one_arq, one_server] {
            let mut accepted = 0;
            for task in tasks {
                let status = task.await.unwrap();
                accepted += i32::from(status == StatusCode::ACCEPTED);
                assert!(!status.is_server_error(), "{name}: {status}");
            }
            assert_eq!(accepted, 1, "{name}");
        }
        assert_eq!(count(&store, OWNED).await, 2, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_patch_unbinds_some_requests_and_binds_others() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(2)]).await.unwrap();
        let nova = Api::admin(&store).with_service();
        let arqs = request(&nova, "FPGA", "2").await;
        nova.patch(PATH, bind(&arqs[..1], specs[0].id, SERVER)).await;
        let mut swap = bind(&arqs[1..], specs[0].id, SERVER);
        swap[&arqs[0]] = unbind(&arqs[0])[&arqs[0]].clone();
        let mut wrong = swap.clone();
        wrong[&arqs[1]][0]["value"] = "cmp2".into();
        assert_eq!(nova.patch(PATH, wrong).await.status, StatusCode::BAD_REQUEST, "{name}");
        let kept = nova.get(&format!("{PATH}/{}", arqs[0])).await;
        assert_eq!(kept.body["state"], "Bound", "{name}: all or nothing");

        let swapped = nova.patch(PATH, swap).await;
        assert_eq!(swapped.status, StatusCode::ACCEPTED, "{name}: {}", swapped.body);
        let freed = nova.get(&format!("{PATH}/{}", arqs[0])).await.body;
        assert_eq!((&freed["state"], &freed["instance_uuid"]), (&json!("Unbound"), &Value::Null));
        let bound = nova.get(&format!("{PATH}/{}", arqs[1])).await.body;
        assert_eq!((&bound["state"], &bound["instance_uuid"]), (&json!("Bound"), &json!(SERVER)));
        assert_eq!(count(&store, OWNED).await, 1, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn the_paths_of_a_patch_have_any_number_of_leading_slashes() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(1)]).await.unwrap();
        let nova = Api::admin(&store).with_service();
        let later = nova.at("accelerator 2.1");
        let arqs = request(&nova, "FPGA", "1").await;
        let arq = &arqs[0];
        for slashes in ["", "/", "//"] {
            let mut body = bind(&arqs, specs[0].id, SERVER);
            let all = body[arq].as_array_mut().unwrap();
            all.push(json!({"path": "/project_id", "op": "add", "value": "p9"}));
            for step in all {
                let field = step["path"].as_str().unwrap().trim_start_matches('/').to_owned();
                step["path"] = format!("{slashes}{field}").into();
            }
            let early = nova.patch(PATH, body.clone()).await;
            assert_eq!(early.status, StatusCode::NOT_ACCEPTABLE, "{name} {slashes:?}");
            let member = later.with_roles("member").patch(PATH, body.clone()).await;
            assert_eq!(member.status, StatusCode::FORBIDDEN, "{name} {slashes:?}");
            let bound = later.patch(PATH, body).await;
            assert_eq!(bound.status, StatusCode::ACCEPTED, "{name} {slashes:?}: {}", bound.body);
            let off = json!({arq: [{"path": format!("{slashes}hostname"), "op": "remove"}]});
            let off = later.patch(PATH, off).await;
            assert_eq!(off.status, StatusCode::ACCEPTED, "{name} {slashes:?}: {}", off.body);
        }
    }
}

#[tokio::test]
async fn users_change_only_their_own_unbound_requests() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(2)]).await.unwrap();
        let user = Api::admin(&store).with_roles("member");
        let stranger = user.of_project("p2");
        let arqs = request(&user, "FPGA", "2").await;
        let path = format!("{PATH}/{}", arqs[0]);
        assert_eq!(stranger.get(PATH).await.body, json!({"arqs": []}), "{name}");
        assert_eq!(stranger.get(&path).await.status, StatusCode::NOT_FOUND, "{name}");
        assert_eq!(stranger.delete(&path).await.status, StatusCode::NOT_FOUND, "{name}");
        let alone = user.patch(PATH, bind(&arqs[..1], specs[0].id, SERVER)).await;
        assert_eq!(alone.status, StatusCode::FORBIDDEN, "{name}");
        let token = "This operation requires a service token. Use the Compute API to manage \
                     instance accelerators.";
        assert_eq!(alone.fault(), token);
        // An administrator of another project acts for the instance, as an evacuation does.
        let nova = Api::admin(&store).of_project("p2").with_service();
        nova.patch(PATH, bind(&arqs[..1], specs[0].id, SERVER)).await;
        assert_eq!(user.get(&path).await.body["project_id"], "p1", "{name}");
        let bound = user.delete(&path).await;
        assert_eq!(bound.status, StatusCode::FORBIDDEN, "{name}");
        assert!(bound.fault().contains(&format!("is bound to instance {SERVER}")));
        let alone = user.delete(&format!("{PATH}?instance={SERVER}")).await;
        assert_eq!((alone.status, alone.fault()), (StatusCode::FORBIDDEN, token.into()));
        let other = stranger.with_service();
        let seen = other.get(&format!("{PATH}?instance={SERVER}")).await;
        assert_eq!(seen.body["arqs"].as_array().unwrap().len(), 1, "{name}");
        let gone = other.delete(&format!("{PATH}?instance={SERVER}")).await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT, "{name}");
        assert_eq!(count(&store, OWNED).await, 0, "{name}");
    }
}

#[tokio::test]
async fn deleting_a_list_deletes_the_requests_that_exist() {
    for (name, store, _guard) in stores().await {
        let api = Api::admin(&store);
        let arqs = request(&api, "FPGA", "2").await;
        let some = api.delete(&format!("{PATH}?arqs={ABSENT},{}", arqs[0])).await;
        assert_eq!(some.status, StatusCode::NOT_FOUND, "{name}");
        assert_eq!(some.fault(), format!("ExtArq not found with uuid={ABSENT}"));
        let left = api.get(PATH).await;
        assert_eq!(left.body["arqs"].as_array().unwrap().len(), 1, "{name}");
        for query in [
            "".to_owned(),
            "?arqs=".to_owned(),
            format!("?arqs={}&instance={SERVER}", arqs[1]),
            format!("?arqs={}&instance=", arqs[1]),
        ] {
            let wrong = api.with_service().delete(&format!("{PATH}{query}")).await;
            assert_eq!(wrong.status, StatusCode::BAD_REQUEST, "{name} {query}");
            assert!(wrong.fault().ends_with("Provide either an ARQ uuid list or an instance UUID"));
        }
        for query in ["arqs=abc", "instance="] {
            let wrong = api.with_service().delete(&format!("{PATH}?{query}")).await;
            assert_eq!(wrong.status, StatusCode::BAD_REQUEST, "{name} {query}");
        }
        let none = api.with_service().delete(&format!("{PATH}?arqs=&instance={SERVER}")).await;
        assert_eq!(none.status, StatusCode::NO_CONTENT, "{name}: an empty list is not given");
        let all = api.get(&format!("{PATH}?bind_state=")).await;
        assert_eq!(all.body["arqs"].as_array().unwrap().len(), 1, "{name}");
        let gone = api.delete(&format!("{PATH}/{}", arqs[1])).await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT, "{name}");
    }
}

#[tokio::test]
async fn requests_of_the_compute_service_are_deleted_only_with_their_server() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(3)]).await.unwrap();
        let api = Api::admin(&store).with_service();
        request(&api, "FPGA", "1").await;
        let provider = specs[0].id;
        let (server, consumer) = (ServerId::new_v4(), ConsumerId::new_v4());
        store
            .write(move |tx| {
                let profile = ledger::profile_by_name(tx, "dp-FPGA-1")?.unwrap();
                assert_eq!(profile.groups[0]["resources:FPGA"], "1");
                assert_eq!(ledger::profile_by_name(tx, "none")?, None);
                let want = |profile| ledger::BindRequest { provider, count: 1, group: 0, profile };
                let wants = [want(Some(profile.id)), want(None)];
                ledger::bind(tx, &World::new(), server, consumer, "p1", &host(), &wants)
            })
            .await
            .unwrap();
        let shown = api.get(&format!("{PATH}?instance={server}")).await.body;
        // The request without a profile is in the ledger, not in the API.
        assert_eq!(shown["arqs"].as_array().unwrap().len(), 1, "{name}");
        let arq = shown["arqs"][0]["uuid"].as_str().unwrap();
        for answer in [
            api.patch(PATH, unbind(arq)).await,
            api.delete(&format!("{PATH}/{arq}")).await,
            api.delete(&format!("{PATH}?instance={server}")).await,
        ] {
            assert_eq!(answer.status, StatusCode::CONFLICT, "{name}");
            assert!(answer.fault().contains(&server.to_string()), "{name}");
        }
        assert_eq!(count(&store, OWNED).await, 2, "{name}");
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
        store.write(move |tx| ledger::release(tx, &World::new(), consumer)).await.unwrap();
        assert_eq!(count(&store, OWNED).await, 0, "{name}");
    }
}

#[tokio::test]
async fn only_administrators_set_the_project_of_a_bind_from_2_1_on() {
    for (name, store, _guard) in stores().await {
        let specs = report(&store, vec![fake(2)]).await.unwrap();
        let nova = Api::admin(&store).with_service();
        let arqs = request(&nova, "FPGA", "1").await;
        let mut body = bind(&arqs, specs[0].id, SERVER);
        let step = json!({"path": "/project_id", "op": "add", "value": "p9"});
        body[&arqs[0]].as_array_mut().unwrap().push(step);
        let early = nova.patch(PATH, body.clone()).await;
        assert_eq!(early.status, StatusCode::NOT_ACCEPTABLE, "{name}");
        let later = nova.at("accelerator 2.1");
        let member = later.with_roles("member").patch(PATH, body.clone()).await;
        assert_eq!(member.status, StatusCode::FORBIDDEN, "{name}");
        assert!(member.fault().ends_with("cyborg:arq:update"));
        assert_eq!(later.patch(PATH, body).await.status, StatusCode::ACCEPTED, "{name}");
        let shown = nova.get(&format!("{PATH}/{}", arqs[0])).await;
        assert_eq!(shown.body["project_id"], "p9", "{name}");
    }
}
