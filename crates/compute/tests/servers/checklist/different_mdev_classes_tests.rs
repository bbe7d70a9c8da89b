//! Upstream's `DifferentMdevClassesTests`: mediated devices that are no vGPUs, of a resource class
//! of their own.

use serde_json::json;

use super::eyes::{holds, inventory};
use super::gpus::{FIRST, NOT_VGPU, SECOND, flavor, gpu, hosts, is_on, resized_twice};
use crate::kit::Cloud;

const CLASS: &str = "CUSTOM_NOTVGPU";

#[tokio::test]
async fn create_servers_with_different_mdev_classes() {
    for (cloud, up) in Cloud::all_up(hosts(&[("host1", "generic", NOT_VGPU)])).await {
        for (class, address, total) in [(CLASS, FIRST, 16), ("VGPU", SECOND, 8)] {
            assert_eq!(inventory(&up, &gpu("host1", address), class).await["total"], total);
            flavor(&up, class, 64, json!({format!("resources:{class}"): "1"})).await;
            let id = up.active(&cloud, "one", class).await;
            holds(&cloud, &up, &id, &[(class, 1)]).await;
            is_on(&cloud, &up, &id, "host1", address, class).await;
        }
        cloud.sound(&up, "two classes").await;
        cloud.sweep(&up, "two classes").await;
    }
}

#[tokio::test]
async fn resize_servers_with_mlx5() {
    let topology = hosts(&[("host1", "generic", NOT_VGPU), ("host2", "generic", NOT_VGPU)]);
    for (cloud, up) in Cloud::all_up(topology).await {
        for (id, ram) in [("small", 64), ("large", 128)] {
            flavor(&up, id, ram, json!({format!("resources:{CLASS}"): "1"})).await;
        }
        let id = up.active_on(&cloud, "host1", "small").await;
        resized_twice(&cloud, &up, &id, "large", CLASS).await;
    }
}
