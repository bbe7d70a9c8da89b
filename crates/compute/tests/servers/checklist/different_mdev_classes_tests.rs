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
    for (cloud, up) in Cloud::all_running(hosts(&[("host1", "generic", NOT_VGPU)])).await {
        for (class, address, total) in [(CLASS, FIRST, 16), ("VGPU", SECOND, 8)] {
            assert_eq!(inventory(&up, &gpu("host1", address), class).await["total"], total);
            flavor(&up, class, 64, json!({format!("resources:{class}"): "1"})).await;
            let id = up.active_server(&cloud, "one", class).await;
            assert_holds(&cloud, &up, &id, &[(class, 1)]).await;
            assert_device_on(&cloud, &up, &id, "host1", address, class).await;
        }
        cloud.assert_consistent(&up, "two classes").await;
        cloud.teardown(&up, "two classes").await;
    }
}

#[tokio::test]
async fn resize_servers_with_mlx5() {
    let topology = hosts(&[("host1", "generic", NOT_VGPU), ("host2", "generic", NOT_VGPU)]);
    for (cloud, up) in Cloud::all_running(topology).await {
        for (id, ram) in [("small", 64), ("large", 128)] {
            flavor(&up, id, ram, json!({format!("resources:{CLASS}"): "1"})).await;
        }
        let id = up.active_server_on(&cloud, "host1", "small").await;
        resize_and_revert_then_confirm(&cloud, &up, &id, "large", CLASS).await;
    }
}
