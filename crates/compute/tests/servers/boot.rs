//! Boots that find a place, and those that do not.

use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, FPGA, GPU, GPUS, fault, hosts};

#[tokio::test]
async fn a_server_gets_its_vgpu_and_gives_it_back() {
    for (cloud, up) in Cloud::all_up(hosts(&[("gpu1", &[GPU]), ("plain1", &[])])).await {
        let id = up.boot(&cloud, "one", "vgpu").await;
        let server = up.becomes(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "gpu1");
        assert_eq!(server["OS-EXT-STS:power_state"], 1);
        assert!(server["OS-SRV-USG:launched_at"].is_string(), "{server}");
        assert_eq!((cloud.used("VGPU").await, cloud.used("VCPU").await), (1, 1));
        assert_eq!(cloud.files("gpu1", "mdevs").len(), 1);
        cloud.sound(&up, "after the boot").await;
        up.delete(&id).await;
        up.goes(&id).await;
        cloud.empty(&up, "after the delete").await;
    }
}
