//! An operator's rules about the objects of requests.

use kilonova_access::Enforcer;
use kilonova_identity::RULES;
use kilonova_policy::{Defaults, Policy};
use kilonova_wire::Dialect;
use serde_json::{Map, Value, json};

use crate::cloud::{Cloud, clouds, mounted};

/// The same services with these rules.
async fn clouds_under(text: &str) -> Vec<Cloud> {
    let own = kilonova_policy::read(text).expect("the file is valid");
    let policy = Policy::build(RULES, &own, Defaults::default()).expect("the policy is valid");
    let enforcer = Enforcer::new(policy.into(), Dialect::Identity);
    let mut clouds = clouds().await;
    for cloud in &mut clouds {
        let identity = cloud.identity.clone().with_policy(enforcer.clone());
        cloud.router = mounted(&identity);
        cloud.identity = identity;
    }
    clouds
}

#[tokio::test]
async fn a_rule_reads_only_the_attributes_that_it_needs() {
    // With every name copied for its use as a path, this body would take 15 GiB.
    let names: Map<String, Value> = (0..40_000).map(|n| (format!("{n:x}"), json!(1))).collect();
    let body = json!({"user": {"x".repeat(400_000): names, "name": "deep"}});
    for cloud in clouds_under("identity:create_user: \"not 'deep':%(target.user.name)s\"").await {
        cloud.demo().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let reply = cloud.as_user(&demo, "POST", "/v3/users", body.clone()).await;
        assert_eq!(reply.status, 403);
    }
}

#[tokio::test]
async fn rules_see_the_ids_of_the_url_and_the_objects() {
    // These rules let a member change itself, delete disabled users, create the user `guest`, change its own project,
    // create the group `ours` and join it, and change every group but `theirs`. The member may also grant itself the
    // role `reader` on its project, and see its own roles there and on the system.
    let text = "\
identity:update_user: \"rule:admin_required or (user_id:%(user_id)s and user_id:%(target.user.id)s)\"
identity:delete_user: \"rule:admin_required or not True:%(target.user.enabled)s\"
identity:create_user: \"rule:admin_required or 'guest':%(target.user.name)s\"
identity:update_project: \"rule:admin_required or (project_id:%(project_id)s and 'demo':%(target.project.name)s)\"
identity:create_group: \"rule:admin_required or 'ours':%(target.group.name)s\"
identity:add_user_to_group: \"rule:admin_required or ('ours':%(target.group.name)s and user_id:%(user_id)s)\"
identity:update_group: \"rule:admin_required or not 'theirs':%(target.group.name)s\"
identity:list_grants: \"rule:admin_required or user_id:%(user_id)s\"
identity:create_grant: \"rule:admin_required or ('reader':%(target.role.name)s and 'demo':%(target.user.name)s)\"
identity:list_system_grants_for_user: \"rule:admin_required or user_id:%(user_id)s\"
";
    for cloud in clouds_under(text).await {
        let (project, user, _) = cloud.demo().await;
        let admin = cloud.admin().await;
        let demo = cloud.token("demo", "demo", "demo").await;
        let other = cloud.make(&admin, "user", json!({"name": "other", "password": "p"})).await;
        let place = cloud.make(&admin, "project", json!({"name": "place"})).await;
        let theirs = cloud.make(&admin, "group", json!({"name": "theirs"})).await;
        let reader = cloud.find(&admin, "role", "reader").await;
        let manager = cloud.find(&admin, "role", "manager").await;
        let ask = async |method: &str, path: String, body: Value| {
            cloud.as_user(&demo, method, &path, body).await.status.as_u16()
        };
        let mail = || json!({"user": {"email": "a@b"}});
        assert_eq!(ask("PATCH", format!("/v3/users/{user}"), mail()).await, 200);
        assert_eq!(ask("PATCH", format!("/v3/users/{other}"), mail()).await, 403);
        assert_eq!(ask("PATCH", "/v3/users/nobody".into(), mail()).await, 403);
        assert_eq!(ask("DELETE", format!("/v3/users/{other}"), Value::Null).await, 403);
        let named = |name: &str| json!({"user": {"name": name}});
        assert_eq!(ask("POST", "/v3/users".into(), named("guest")).await, 201);
        assert_eq!(ask("POST", "/v3/users".into(), named("host")).await, 403);
        let text = || json!({"project": {"description": "d"}});
        assert_eq!(ask("PATCH", format!("/v3/projects/{project}"), text()).await, 200);
        assert_eq!(ask("PATCH", format!("/v3/projects/{place}"), text()).await, 403);
        let named = |name: &str| json!({"group": {"name": name}});
        assert_eq!(ask("POST", "/v3/groups".into(), named("ours")).await, 201);
        assert_eq!(ask("POST", "/v3/groups".into(), named("yours")).await, 403);
        let ours = cloud.find(&admin, "group", "ours").await;
        assert_eq!(ask("PUT", format!("/v3/groups/{ours}/users/{user}"), Value::Null).await, 204);
        assert_eq!(ask("PUT", format!("/v3/groups/{ours}/users/{other}"), Value::Null).await, 403);
        assert_eq!(ask("PUT", format!("/v3/groups/{theirs}/users/{user}"), Value::Null).await, 403);
        let text = || json!({"group": {"description": "d"}});
        assert_eq!(ask("PATCH", format!("/v3/groups/{ours}"), text()).await, 200);
        assert_eq!(ask("PATCH", format!("/v3/groups/{theirs}"), text()).await, 403);
        // The member's change to the group ended its tokens, so it logs in again.
        let demo = cloud.token("demo", "demo", "demo").await;
        let ask = async |method: &str, path: String| {
            cloud.as_user(&demo, method, &path, Value::Null).await.status.as_u16()
        };
        for (who, status) in [(&user, 200), (&other, 403)] {
            let roles = format!("/v3/projects/{project}/users/{who}/roles");
            assert_eq!(ask("GET", roles).await, status);
            assert_eq!(ask("GET", format!("/v3/system/users/{who}/roles")).await, status);
        }
        let roles = format!("/v3/projects/{project}/users/{user}/roles");
        assert_eq!(ask("PUT", format!("{roles}/{manager}")).await, 403);
        assert_eq!(ask("PUT", format!("{roles}/{reader}")).await, 204);
        let roles = format!("/v3/projects/{project}/users/{other}/roles");
        assert_eq!(ask("PUT", format!("{roles}/{reader}")).await, 403);
    }
}
