//! Mixed cards: Placement has inventory, but the card's other kind of handle is in use.

use serde_json::json;

use crate::kit::{Cloud, RunningCloud, fault, hosts, network_cards};

async fn flavors(running: &RunningCloud) {
    for (id, class) in [("whole", "CUSTOM_X710"), ("part", "CUSTOM_X710_VF")] {
        running.flavor(id, json!({})).await;
        let specs = json!({"extra_specs": {format!("resources:{class}"): "1"}});
        let path = format!("POST /flavors/{id}/os-extra_specs");
        running.admin("2.61", &path, specs).await.expect(200);
    }
}

#[tokio::test]
async fn the_fault_names_the_card_in_use() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[&network_cards(1)])])).await {
        flavors(&running).await;
        for (first, then, why) in [
            ("part", "whole", "Card 0000:40:00.0 of host a has no free CUSTOM_X710: 0000:40:"),
            ("whole", "part", ": the whole card is in use."),
        ] {
            running.active_server(&cloud, "first", first).await;
            let refused = running.boot(&cloud, "then", then).await;
            let server = running.wait_for_status(&refused, "ERROR").await;
            let message = fault(&server);
            assert!(
                message.starts_with("No valid host was found. ") && message.contains(why),
                "{message}"
            );
            cloud.assert_consistent(&running, then).await;
            cloud.teardown(&running, then).await;
        }
    }
}

/// More cards are in use than a boot has alternatives to try.
#[tokio::test]
async fn the_only_free_card_is_found() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[&network_cards(24)])])).await {
        running.remove_quota_limits().await;
        flavors(&running).await;
        for n in 0..23 {
            running.active_server(&cloud, &format!("part{n}"), "part").await;
        }
        running.active_server(&cloud, "whole", "whole").await;
        let refused = running.boot(&cloud, "one too many", "whole").await;
        let server = running.wait_for_status(&refused, "ERROR").await;
        assert!(fault(&server).ends_with(" The same applies to more cards."), "{server}");
        cloud.assert_consistent(&running, "many cards").await;
        cloud.teardown(&running, "many cards").await;
    }
}
