//! Cards that Placement has room on and that have nothing to give, because their other half is in
//! use.

use serde_json::json;

use crate::kit::{Cloud, Up, cards, fault, hosts};

async fn flavors(up: &Up) {
    for (id, class) in [("whole", "CUSTOM_X710"), ("part", "CUSTOM_X710_VF")] {
        up.flavor(id, json!({})).await;
        let specs = json!({"extra_specs": {format!("resources:{class}"): "1"}});
        let path = format!("POST /flavors/{id}/os-extra_specs");
        up.admin("2.61", &path, specs).await.expect(200);
    }
}

#[tokio::test]
async fn the_card_that_is_in_use_is_named() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[&cards(1)])])).await {
        flavors(&up).await;
        for (first, then, why) in [
            (
                "part",
                "whole",
                "No CUSTOM_X710 is to be had of card 0000:40:00.0 of host a: 0000:40:",
            ),
            ("whole", "part", ": 0000:40:00.0 is in use whole."),
        ] {
            up.active(&cloud, "first", first).await;
            let refused = up.boot(&cloud, "then", then).await;
            let server = up.becomes(&refused, "ERROR").await;
            let said = fault(&server);
            assert!(said.starts_with("No valid host was found. ") && said.contains(why), "{said}");
            cloud.sound(&up, then).await;
            cloud.sweep(&up, then).await;
        }
    }
}

/// More cards are in use than a plan has alternatives.
#[tokio::test]
async fn the_one_card_left_among_many_is_found() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[&cards(24)])])).await {
        up.lift_quota().await;
        flavors(&up).await;
        for n in 0..23 {
            up.active(&cloud, &format!("part{n}"), "part").await;
        }
        up.active(&cloud, "whole", "whole").await;
        let refused = up.boot(&cloud, "one too many", "whole").await;
        let server = up.becomes(&refused, "ERROR").await;
        assert!(fault(&server).ends_with(" The same goes for more cards."), "{server}");
        cloud.sound(&up, "many cards").await;
        cloud.sweep(&up, "many cards").await;
    }
}
