//! The findings of the doctor within a running controller.

use futures_util::FutureExt;
use kilonova_compute_app::attention::report::examine;
use kilonova_ids::ServerId;
use kilonova_store::params;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, GPU, hosts};

#[tokio::test]
async fn a_controller_examines_its_cloud() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu-pair").await;
        let path = "/kilonova/doctor";
        running.get(ANN, "2.1", path).await.refused(403, "kilonova:doctor:show");
        let found = running.get(ADMIN, "2.1", path).await.expect(200)["doctor"].take();
        assert_eq!(
            (&found["findings"], &found["more_findings"]),
            (&json!([]), &json!(0)),
            "{found}"
        );
        let areas = found["areas"].as_array().expect("a list");
        let names: Vec<&Value> = areas.iter().map(|area| &area["name"]).collect();
        assert_eq!(names, ["nodes", "clock", "operations", "devices", "routers", "ledger"]);
        assert!(areas.iter().all(|area| area["state"] == "ok"), "{found}");
        assert_eq!(areas[0]["about"], "2 hosts, 2 of them up");

        // For a few seconds, the answer is the same examination.
        let again = running.get(ADMIN, "2.1", path).await.expect(200)["doctor"].take();
        assert_eq!(again, found);

        // If a client disconnects, its examination continues for later clients.
        let mut away = running.compute.clone();
        away.examiner = Default::default();
        let mut examination = Box::pin(examine(&away));
        assert!(examination.as_mut().now_or_never().is_none(), "the examination has not ended yet");
        drop(examination);
        assert!(away.examiner.is_busy());
        examine(&away).await.expect("it is readable");
        assert!(!away.examiner.is_busy());

        // Another controller makes its own examination.
        let server: ServerId = kilonova_ids::parse_uuid_like(&id).expect("an id");
        let write = running.compute.store.write(move |tx| {
            tx.execute("UPDATE servers SET host = NULL WHERE id = ?1", params![server])
        });
        write.await.expect("the row changes");
        let mut other = running.compute.clone();
        other.examiner = Default::default();
        let found = examine(&other).await;
        let found = found.expect("it is readable");
        let broken = found.findings.iter().find(|finding| finding.area == "ledger");
        let broken = broken.expect("the ledger is broken");
        assert!(broken.what.contains("BROKEN by") && broken.what.contains(&id), "{}", broken.what);
        assert!(!broken.remedy.is_empty());
        assert_eq!(found.state("ledger").map(|level| level.as_str()), Some("error"));
        assert_eq!(found.state("nodes"), None);
    }
}
