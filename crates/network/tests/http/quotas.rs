//! Quotas.

use serde_json::{Value, json};

use crate::kit::apis;

#[tokio::test]
async fn quotas_are_enforced() {
    for api in apis().await {
        let (_, body) = api.call("admin", "GET /quotas/p/details", None).await;
        assert_eq!(body["quota"]["port"], json!({"limit": 500, "used": 0, "reserved": 0}));
        assert_eq!(api.call("u:p", "GET /quotas/other", None).await.0, 403);
        assert_eq!(api.ok("admin", "GET /quotas", None).await, json!({"quotas": []}));
        let set = json!({"quota": {"network": 1}});
        assert_eq!(api.call("u:p", "PUT /quotas/p", Some(set.clone())).await.0, 403);
        let set = api.ok("admin", "PUT /quotas/p", Some(set)).await;
        assert_eq!(set["quota"]["network"], 1);
        api.make("u:p", "network", json!({})).await;
        let body = Some(json!({"network": {}}));
        api.refused("u:p", "POST /networks", body, 409, "OverQuota").await;
        api.none("admin", "DELETE /quotas/p").await;
        api.make("u:p", "network", json!({})).await;
        let delete = "DELETE /quotas/p";
        api.refused("admin", delete, None, 404, "TenantQuotaNotFound").await;
        let (_, body) = api.call("admin", delete, None).await;
        let message = "Quota for project p could not be found.";
        assert_eq!(body["NeutronError"]["message"], message);
    }
}

#[tokio::test]
async fn a_quota_below_the_usage_has_to_be_forced() {
    for api in apis().await {
        for _ in 0..2 {
            api.make("u:p", "network", json!({})).await;
        }
        let put = async |more: Value| {
            let mut quota = json!({"network": 1, "port": 7});
            quota.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            api.call("admin", "PUT /quotas/p", Some(json!({"quota": quota}))).await
        };
        let words = "Quota limit 1 for network must be greater than or equal to already used 2";
        // Only the boolean forces, as in upstream.
        for more in [json!({}), json!({"force": false}), json!({"force": "true"})] {
            let (status, body) = put(more.clone()).await;
            assert_eq!((status, &body["NeutronError"]["message"]), (400, &json!(words)), "{more}");
        }
        let quota = api.ok("admin", "GET /quotas/p", None).await["quota"].clone();
        assert_eq!((&quota["network"], &quota["port"]), (&json!(100), &json!(500)));
        for (more, limit) in [
            (json!({"network": 2, "check_limit": true}), 2),
            (json!({"network": -1}), -1),
            (json!({"force": true}), 1),
        ] {
            let (status, body) = put(more).await;
            assert_eq!((status, &body["quota"]["network"]), (200, &json!(limit)), "{body}");
        }
    }
}
