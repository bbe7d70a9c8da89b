//! The form of new servers.

use axum::body::Body;
use http::Method;
use serde_json::json;

use crate::browser::Browser;
use crate::cloud::clouds;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_are_launched_and_the_form_says_whether_they_fit() {
    for cloud in clouds().await {
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let form = ann.get("/dashboard/launch").await;
        form.has_status(200)
            .shows("tiny")
            .shows("greedy")
            .shows("40 × VGPU")
            .shows("hello")
            .shows("private");
        form.shows("on 2 hosts.");
        let room = ann.get("/dashboard/launch/room?flavor=f-vgpu&count=2").await;
        room.has_status(200)
            .shows("8 more servers of this flavor fit now, on 1 host.")
            .hides("<html");
        let room = ann.get("/dashboard/launch/room?flavor=f-vgpu&count=9").await;
        room.shows("Not that many fit now.").shows("8 more servers");
        let room = ann.get("/dashboard/launch/room?flavor=f-greedy&count=1").await;
        room.shows("It does not fit now.").shows("VGPU").hides("h1");
        room.shows("Flavors of this kind that fit now: vgpu.");
        let room = ann.get("/dashboard/launch/room?flavor=f-greedy&count=9").await;
        room.shows("It does not fit now.").hides("Flavors of this kind");
        ann.get("/dashboard/launch/room?flavor=nothing")
            .await
            .has_status(200)
            .shows("could not be counted");
        let (image, network) = (cloud.image.clone(), cloud.network.clone());
        let fields = [
            ("name", "web"),
            ("count", "2"),
            ("flavor", "f-vgpu"),
            ("image", &*image),
            ("network", &*network),
            ("user_data", "#!/bin/sh\r\ntrue"),
        ];
        let page = ann.submit(&form, "/dashboard/launch", &fields).await;
        page.has_status(200).shows("web-1").shows("web-2");
        let left = ann.get("/dashboard/launch/room?flavor=f-vgpu&count=1").await;
        left.shows("6 more servers");
        // The page shows the service's message, and the form keeps the input.
        let mut wrong = fields;
        wrong[3].1 = "00000000-0000-0000-0000-000000000000";
        let page = ann.submit(&form, "/dashboard/launch", &wrong).await;
        page.has_status(400).shows("role=\"alert\"").shows("value=\"web\"").shows("#!/bin/sh");
        wrong[0].1 = " ";
        let page = ann.submit(&form, "/dashboard/launch", &wrong).await;
        page.has_status(400).shows("type a name");
        let checked = ann.get("/dashboard/launch?name=x&count=9&flavor=f-vgpu").await;
        checked.shows("Not that many fit now.").shows("value=\"x\"").shows("value=\"9\"");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_is_not_among_the_first_is_offered_where_it_is_wanted() {
    for cloud in clouds().await {
        let mut ann = Browser::of(&cloud, "ann", "red").await;
        let wanted = format!("value=\"{}\" selected", cloud.image);
        let at = format!("/dashboard/launch?image={}", cloud.image);
        ann.get(&at).await.has_status(200).shows(&wanted).hides("There are more images");
        let image = json!({"name": "a", "visibility": "public", "disk_format": "raw", "container_format": "bare"});
        for _ in 0..200 {
            let made = cloud.post("/image/v2/images", image.clone()).await;
            let path = format!("/image/v2/images/{}/file", made["id"].as_str().unwrap());
            cloud.send(Method::PUT, &path, "application/octet-stream", Body::from("a")).await;
        }
        let page = ann.get("/dashboard/launch").await;
        page.has_status(200).shows("There are more images").hides(&cloud.image);
        ann.get(&at).await.has_status(200).shows("There are more images").shows(&wanted);
        let missing = "/dashboard/launch?image=00000000-0000-0000-0000-000000000000";
        ann.get(missing).await.has_status(200).hides(" selected>00000000");
    }
}
