//! Rescue of servers with volumes.

use serde_json::{Value, json};

use super::rebuild::server;
use super::{attach, clouds, finish, settled, try_detach, volume, wait_for};
use crate::kit::ANN;

#[tokio::test]
async fn a_volume_backed_server_is_rescued_beside_its_volumes() {
    for (cloud, mut running, cinder) in clouds(&["a"]).await {
        let (id, [disk, data]) = server(&cloud, &running, &cinder).await;
        let image = async |name: &'static str, properties: &[(&str, &str)]| {
            cloud.image_with(name, properties, b"x".to_vec()).await.to_string()
        };
        let stable = [("hw_rescue_device", "disk"), ("hw_rescue_bus", "virtio")];
        let (beside, half) = (image("beside", &stable).await, image("half", &stable[..1]).await);
        let path = format!("POST /servers/{id}/action");
        let words =
            format!("Instance {id} cannot be rescued: Cannot rescue a volume-backed instance");
        for (version, wish) in [
            ("2.86", json!({"rescue_image_ref": beside})),
            ("2.87", json!({"rescue_image_ref": half})),
            ("2.87", json!({"rescue_image_ref": cloud.image})),
            ("2.87", Value::Null),
        ] {
            let answer = running.call(ANN, version, &path, Some(json!({"rescue": wish}))).await;
            answer.refused(400, &words);
        }
        let rescue = || Some(json!({"rescue": {"rescue_image_ref": beside}}));
        // A volume that is being detached.
        let third = volume(&cinder, json!({}));
        attach(&running, &cinder, &id, &third).await;
        settled(&cloud).await;
        running.nodes.kill("a").await;
        try_detach(&running, &id, &third).await.expect(202);
        let busy = running.call(ANN, "2.87", &path, rescue()).await;
        busy.refused(409, "status must be 'in-use'. Currently in 'detaching' status");
        running.start_node(&cloud, "a").await;
        wait_for(&cinder, &third, "available").await;
        settled(&cloud).await;

        let attachments = || {
            let of = |volume: &String| cinder.state().attachments_of(volume)[0].0.clone();
            [of(&disk), of(&data)]
        };
        let before = attachments();
        running.call(ANN, "2.87", &path, rescue()).await.expect(200);
        running.wait_for_status(&id, "RESCUE").await;
        settled(&cloud).await;
        assert_eq!(cloud.files("a", "volumes").len(), 2);
        running.act(&id, json!({"unrescue": null})).await;
        running.wait_for_status(&id, "ACTIVE").await;
        settled(&cloud).await;
        assert_eq!(cloud.files("a", "volumes").len(), 2);
        assert_eq!(attachments(), before, "the volumes stay");
        finish(&cloud, &running, &cinder, "rescued").await;
    }
}
