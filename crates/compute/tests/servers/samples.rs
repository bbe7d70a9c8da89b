//! Samples of usage: one per slot, kept in coarser steps, read by operators.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_app::reconcile::samples::run;
use kilonova_compute_db::samples::{MOST, OF_DAY, OF_MONTH, OF_WEEK, Usage, add, is_due, since};
use kilonova_wire::time;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, GPU, RunningCloud, hosts};
use crate::servers::host_selection::placement;

async fn usage(running: &RunningCloud, period: &str) -> Value {
    let path = format!("/kilonova/usage?period={period}");
    running.get(ADMIN, "2.1", &path).await.expect(200)["usage"].take()
}

/// The used amounts and the capacities of a class.
fn of<'a>(shown: &'a Value, class: &str) -> Vec<(&'a Value, &'a Value)> {
    let classes = shown["classes"].as_array().expect("a list");
    let class = classes.iter().find(|one| one["resource_class"] == class).expect("it is sampled");
    let samples = class["samples"].as_array().expect("a list");
    samples.iter().map(|sample| (&sample[1], &sample[2])).collect()
}

#[tokio::test]
async fn usage_is_sampled_and_read_by_operators() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        let path = "/kilonova/usage";
        running.get(ANN, "2.1", path).await.refused(403, "kilonova:capacity:show");
        assert_eq!(usage(&running, "day").await["classes"], json!([]));
        running.active_server(&cloud, "one", "vgpu-pair").await;
        run(running.compute.clone()).await.expect("a sample is taken");
        for (period, step) in [("day", 300), ("week", 1800), ("month", 7200)] {
            let shown = usage(&running, period).await;
            assert_eq!((&shown["step"], &shown["period"]), (&json!(step), &json!(period)));
            assert_eq!(of(&shown, "VGPU"), [(&json!(2), &json!(16))], "{shown}");
        }
        // The capacity is Placement's, with overcommit.
        let all = placement(&running, "GET", "/resource_providers", Value::Null).await;
        let (mut capacity, mut total) = (0, 0);
        for provider in all["resource_providers"].as_array().expect("a list") {
            let path = format!(
                "/resource_providers/{}/inventories",
                provider["uuid"].as_str().expect("an id")
            );
            let vcpu =
                placement(&running, "GET", &path, Value::Null).await["inventories"]["VCPU"].take();
            let number = |key: &str| vcpu[key].as_i64().unwrap_or_default();
            let ratio = vcpu["allocation_ratio"].as_f64().unwrap_or_default();
            capacity += ((number("total") - number("reserved")) as f64 * ratio) as i64;
            total += number("total");
        }
        assert!(capacity > total, "{capacity} of {total}");
        let shown = usage(&running, "day").await;
        assert_eq!(of(&shown, "VCPU")[0].1, &json!(capacity), "{shown}");
        let wrong = running.get(ADMIN, "2.1", "/kilonova/usage?period=year").await;
        wrong.refused(400, "day, week or month");
        cloud.teardown(&running, "samples").await;
    }
}

fn sample(classes: impl Iterator<Item = String>) -> Vec<Usage> {
    classes.map(|resource_class| Usage { resource_class, used: 1, capacity: 2 }).collect()
}

#[tokio::test]
async fn a_slot_has_one_sample_and_old_ones_are_deleted() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let begin = time::now();
        let found = running.compute.store.write(move |tx| {
            let at = |hours: i64| time::after(begin, SignedDuration::from_hours(hours));
            let (one, many) = (["VGPU".to_owned()], (0..70).map(|at| format!("CUSTOM_{at:02}")));
            let (one, many) = (sample(one.into_iter()), sample(many));
            // Hourly samples of a month and a half, and one sample of more classes than are kept.
            for hours in 0..(45 * 24) {
                add(tx, at(hours), &one)?;
            }
            let end = at(45 * 24);
            assert!(is_due(tx, end)?, "its slot has no sample");
            add(tx, end, &many)?;
            assert!(!is_due(tx, end)?, "its slot has one");
            // A second sample at the same time is ignored, even if it has other classes.
            add(tx, end, &one)?;
            let mut found = Vec::new();
            for step in [OF_DAY, OF_WEEK, OF_MONTH] {
                let all = since(tx, step, end, 100 * 24 * 3600)?;
                let slots: BTreeSet<Timestamp> = all.iter().map(|(at, _)| *at).collect();
                let oldest = slots.first().map(|first| end.duration_since(*first).as_secs());
                let last = slots.last().copied();
                let last = all.iter().filter(|(at, _)| Some(*at) == last).count();
                found.push((slots.len(), last, oldest.is_some_and(|age| age <= step.kept)));
            }
            Ok::<_, kilonova_compute_db::Error>(found)
        });
        let found = found.await.expect("they are written");
        // The last slot of two hours may have begun with the previous sample.
        for ((slots, last, recent), most) in found.iter().zip([26, 193, 421]) {
            assert!(*recent && *slots <= most && *slots + 3 > most, "{found:?}");
            assert!(*last == MOST || *last == 1, "{found:?}");
        }
        assert_eq!((found[0].1, found[1].1), (MOST, MOST), "{found:?}");
        cloud.teardown(&running, "sample bounds").await;
    }
}
