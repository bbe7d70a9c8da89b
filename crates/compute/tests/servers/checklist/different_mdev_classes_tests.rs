//! Upstream's `DifferentMdevClassesTests`: mediated devices other than vGPUs, with a resource class
//! of their own.

use serde_json::json;

use super::gpus::{
    FIRST, NOT_VGPU, SECOND, assert_device_on, flavor, gpu, hosts, resize_and_revert_then_confirm,
};
use super::inspect::{assert_holds, inventory};
use crate::kit::Cloud;

const CLASS: &str = "CUSTOM_NOTVGPU";

#[tokio::test]
async fn create_servers_with_different_mdev_classes() {
    for (cloud, running) in Cloud::all_running(hosts(&[("host1", "generic", NOT_VGPU)])).await {
        for (class, address, total) in [(CLASS, FIRST, 16), ("VGPU", SECOND, 8)] {
            assert_eq!(inventory(&running, &gpu("host1", address), class).await["total"], total);
            flavor(&running, class, 64, json!({format!("resources:{class}"): "1"})).await;
            let id = running.active_server(&cloud, "one", class).await;
            assert_holds(&cloud, &running, &id, &[(class, 1)]).await;
            assert_device_on(&cloud, &running, &id, "host1", address, class).await;
        }
        cloud.assert_consistent(&running, "two classes").await;
        cloud.teardown(&running, "two classes").await;
    }
}

#[tokio::test]
async fn resize_servers_with_mlx5() {
    let topology = hosts(&[("host1", "generic", NOT_VGPU), ("host2", "generic", NOT_VGPU)]);
    for (cloud, running) in Cloud::all_running(topology).await {
        for (id, ram) in [("small", 64), ("large", 128)] {
            flavor(&running, id, ram, json!({format!("resources:{CLASS}"): "1"})).await;
        }
        let id = running.active_server_on(&cloud, "host1", "small").await;
        resize_and_revert_then_confirm(&cloud, &running, &id, "large", CLASS).await;
    }
}
