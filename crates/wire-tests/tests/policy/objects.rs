//! One object of each kind in a project of its own, so that rules have an object to decide on, and
//! the request bodies of the operations.

use std::collections::HashMap;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::fuzz::cloud::Cloud;
use crate::policy::request::{Caller, ask, send};

/// An id that no object has.
pub const NOTHING: &str = "0e0e0e0e-0000-4000-8000-000000000000";

/// The users and projects, and the objects of the first project.
#[derive(Debug, Default)]
pub struct Objects {
    pub ann: String,
    pub red: String,
    pub bob: String,
    pub blue: String,
    ids: HashMap<&'static str, String>,
}

impl Objects {
    /// Creates the objects in a new project.
    pub async fn new(cloud: &Cloud, service: &str) -> Self {
        let mut things = Self {
            ann: "ann".to_owned(),
            red: fresh(),
            bob: "bob".to_owned(),
            blue: fresh(),
            ..Self::default()
        };
        // The images that compute shows belong to the image service.
        let service = if service == "images of compute" { "image" } else { service };
        let Some(router) = cloud.routers.get(service) else { return things };
        match service {
            "compute" => things.compute(router, cloud).await,
            "accelerator" => things.accelerator(router).await,
            "image" => things.image(router).await,
            "network" => things.network(router).await,
            "identity" => things.identity(router, cloud).await,
            _ => {}
        }
        things
    }

    /// A caller with a role, in the objects' project or in the other one.
    pub fn caller(&self, role: &str, own: bool) -> Caller {
        let (user, project) = if own { (&self.ann, &self.red) } else { (&self.bob, &self.blue) };
        Caller { role: role.to_owned(), user: user.clone(), project: project.clone() }
    }

    async fn make(
        &mut self,
        router: &Router,
        role: &str,
        path: &str,
        kind: &'static str,
        body: Value,
    ) {
        let caller = self.caller(role, true);
        let made = ask(router, &Method::POST, path, Some(&caller), &body).await;
        assert!((200..300).contains(&made.status), "{path}: {} {}", made.status, made.text);
        let made: Value = serde_json::from_str(&made.text).expect("the response is JSON");
        let thing = made.as_object().and_then(|all| all.values().next()).unwrap_or(&made);
        let thing = if thing.is_object() { thing } else { &made };
        let id = thing.get("id").or_else(|| thing.get("name")).expect("the object has an id");
        let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        self.ids.insert(kind, id);
    }

    async fn compute(&mut self, router: &Router, cloud: &Cloud) {
        let name = self.red.clone();
        let flavor = json!({"flavor": {"name": name, "ram": 64, "vcpus": 1, "disk": 1}});
        self.make(router, "admin", "/v2.1/flavors", "flavors", flavor).await;
        let sent = json!({"server": {
            "name": "s", "flavorRef": self.ids["flavors"], "imageRef": cloud.image}});
        self.make(router, "member", "/v2.1/servers", "servers", sent).await;
        let group = json!({"server_group": {"name": name, "policies": ["affinity"]}});
        self.make(router, "member", "/v2.1/os-server-groups", "os-server-groups", group).await;
        let aggregate = json!({"aggregate": {"name": name}});
        self.make(router, "admin", "/v2.1/os-aggregates", "os-aggregates", aggregate).await;
        self.ids.insert("kilonova/servers", self.ids["servers"].clone());
    }

    async fn accelerator(&mut self, router: &Router) {
        let profile = json!([{"name": self.red, "groups": [{"resources:FPGA": "1"}]}]);
        for (role, path, body, at, kind) in [
            ("admin", "/v2/device_profiles", profile, "/uuid", "device_profiles"),
            (
                "member",
                "/v2/accelerator_requests",
                json!({"device_profile_name": self.red}),
                "/arqs/0/uuid",
                "accelerator_requests",
            ),
        ] {
            let caller = self.caller(role, true);
            let made = ask(router, &Method::POST, path, Some(&caller), &body).await;
            assert_eq!(made.status, 201, "{path}: {}", made.text);
            let made: Value = serde_json::from_str(&made.text).expect("the response is JSON");
            let id = made.pointer(at).and_then(Value::as_str).expect("the object has an id");
            self.ids.insert(kind, id.to_owned());
        }
    }

    async fn image(&mut self, router: &Router) {
        let image = json!({"name": "i", "visibility": "shared", "disk_format": "raw",
            "container_format": "bare", "tags": [TAG]});
        let caller = self.caller("member", true);
        let made = ask(router, &Method::POST, "/v2/images", Some(&caller), &image).await;
        let made: Value = serde_json::from_str(&made.text).expect("the response is JSON");
        let id = made["id"].as_str().expect("the object has an id").to_owned();
        let path = format!("/v2/images/{id}");
        for (below, body) in [("members", json!({"member": "green"})), ("file", json!("bytes"))] {
            let path = format!("{path}/{below}");
            let method = if below == "file" { Method::PUT } else { Method::POST };
            let made = ask(router, &method, &path, Some(&caller), &body).await;
            assert!((200..300).contains(&made.status), "{path}: {} {}", made.status, made.text);
        }
        self.ids.insert("images", id);
        self.ids.insert("members", "green".to_owned());
    }

    async fn network(&mut self, router: &Router) {
        let network = json!({"network": {"name": "n"}});
        self.make(router, "member", "/v2.0/networks", "networks", network).await;
        let on = self.ids["networks"].clone();
        let subnet = json!({"subnet": {
            "network_id": on, "ip_version": 4, "cidr": "192.0.2.0/25"}});
        self.make(router, "member", "/v2.0/subnets", "subnets", subnet).await;
        let port = json!({"port": {"network_id": on}});
        self.make(router, "member", "/v2.0/ports", "ports", port).await;
        let group = json!({"security_group": {"name": "g"}});
        self.make(router, "member", "/v2.0/security-groups", "security-groups", group).await;
        let rule = json!({"security_group_rule": {
            "security_group_id": self.ids["security-groups"], "direction": "ingress"}});
        let path = "/v2.0/security-group-rules";
        self.make(router, "member", path, "security-group-rules", rule).await;
        self.routers(router, &on).await;
        let tagged = ["networks", "subnets", "ports", "security-groups", "routers", "floatingips"];
        for kind in tagged {
            let path = format!("/v2.0/{kind}/{}/tags/{TAG}", self.ids[kind]);
            let caller = self.caller("member", true);
            let made = ask(router, &Method::PUT, &path, Some(&caller), &json!({})).await;
            assert_eq!(made.status, 201, "{path}: {}", made.text);
        }
        let (path, limits) =
            (format!("/v2.0/quotas/{}", self.red), json!({"quota": {"subnet": 70}}));
        let admin = self.caller("admin", true);
        let made = ask(router, &Method::PUT, &path, Some(&admin), &limits).await;
        assert_eq!(made.status, 200, "{path}: {}", made.text);
        self.ids.insert("quotas", self.red.clone());
        self.ids.insert("network-ip-availabilities", on);
    }

    /// A router with an interface, and a floating IP of a third project's external network.
    async fn routers(&mut self, router: &Router, network: &str) {
        let external = json!({"network": {"router:external": true}});
        let caller = Caller { project: fresh(), ..self.caller("admin", false) };
        let made = ask(router, &Method::POST, "/v2.0/networks", Some(&caller), &external).await;
        let made: Value = serde_json::from_str(&made.text).expect("the response is JSON");
        let id = made["network"]["id"].as_str().expect("the object has an id").to_owned();
        let subnet = json!({"subnet": {
            "network_id": id, "ip_version": 4, "cidr": "203.0.113.0/24"}});
        let made = ask(router, &Method::POST, "/v2.0/subnets", Some(&caller), &subnet).await;
        assert_eq!(made.status, 201, "{}", made.text);
        self.ids.insert("external", id.clone());
        let subnet = json!({"subnet": {
            "network_id": network, "ip_version": 4, "cidr": "192.0.2.128/25"}});
        let own = self.ids["subnets"].clone();
        self.make(router, "member", "/v2.0/subnets", "subnets", subnet).await;
        let routed = self.ids.insert("subnets", own).unwrap_or_default();
        let sent = json!({"router": {"name": "r"}});
        self.make(router, "member", "/v2.0/routers", "routers", sent).await;
        let path = format!("/v2.0/routers/{}/add_router_interface", self.ids["routers"]);
        let (caller, sent) = (self.caller("member", true), json!({"subnet_id": routed}));
        let made = ask(router, &Method::PUT, &path, Some(&caller), &sent).await;
        assert_eq!(made.status, 200, "{}", made.text);
        self.ids.insert("routed", routed);
        let sent = json!({"floatingip": {"floating_network_id": id}});
        self.make(router, "member", "/v2.0/floatingips", "floatingips", sent).await;
    }

    async fn identity(&mut self, router: &Router, cloud: &Cloud) {
        let password = fresh();
        for (project, user) in [("red", "ann"), ("blue", "bob")] {
            let body = json!({"project": {"name": format!("{project}-{password}")}});
            self.make(router, "admin", "/v3/projects", "projects", body).await;
            let body =
                json!({"user": {"name": format!("{user}-{password}"), "password": password}});
            self.make(router, "admin", "/v3/users", "users", body).await;
            let made = (self.ids["projects"].clone(), self.ids["users"].clone());
            if project == "red" {
                (self.red, self.ann) = made;
            } else {
                (self.blue, self.bob) = made;
            }
        }
        self.ids.insert("projects", self.red.clone());
        self.ids.insert("users", self.ann.clone());
        self.ids.insert("domains", "default".to_owned());
        let unique = fresh();
        for (kind, one) in [("groups", "group"), ("roles", "role")] {
            let body = json!({one: {"name": format!("{one}-{unique}")}});
            self.make(router, "admin", &format!("/v3/{kind}"), kind, body).await;
        }
        let (path, caller) = ("/v3/roles?name=member", self.caller("admin", true));
        let found = ask(router, &Method::GET, path, Some(&caller), &Value::Null).await;
        let found: Value = serde_json::from_str(&found.text).expect("the response is JSON");
        self.ids.insert(
            "member",
            found["roles"][0]["id"].as_str().expect("the role has an id").to_owned(),
        );
        let service = json!({"service": {"type": "volumev3", "name": unique}});
        self.make(router, "admin", "/v3/services", "services", service).await;
        let endpoint = json!({"endpoint": {"service_id": self.ids["services"],
            "interface": "public", "url": "http://volume/"}});
        self.make(router, "admin", "/v3/endpoints", "endpoints", endpoint).await;
        let region = json!({"region": {"id": unique}});
        self.make(router, "admin", "/v3/regions", "regions", region).await;
        // The user `ann` has the role on the project and is in the group, which has the role too.
        let (red, ann) = (self.red.clone(), self.ann.clone());
        let (role, group) = (self.ids["roles"].clone(), self.ids["groups"].clone());
        for path in [
            format!("/v3/projects/{red}/users/{ann}/roles/{role}"),
            format!("/v3/projects/{red}/groups/{group}/roles/{role}"),
            format!("/v3/domains/default/users/{ann}/roles/{role}"),
            format!("/v3/domains/default/groups/{group}/roles/{role}"),
            format!("/v3/system/users/{ann}/roles/{role}"),
            format!("/v3/system/groups/{group}/roles/{role}"),
            format!("/v3/groups/{group}/users/{ann}"),
            format!("/v3/projects/{red}/tags/{TAG}"),
        ] {
            let caller = self.caller("admin", true);
            let made = ask(router, &Method::PUT, &path, Some(&caller), &json!({})).await;
            assert!((200..300).contains(&made.status), "{path}: {} {}", made.status, made.text);
        }
        // A registered limit that a limit overrides cannot be deleted, so there are two.
        let service = self.ids["services"].clone();
        let names = [unique.clone(), format!("{unique}-overridden")];
        let default =
            |name| json!({"service_id": service, "resource_name": name, "default_limit": 1});
        let defaults = json!({"registered_limits": names.each_ref().map(default)});
        let limit = json!({"limits": [{"service_id": service, "resource_name": names[1],
            "resource_limit": 1, "project_id": red}]});
        for (kind, body) in [("registered_limits", defaults), ("limits", limit)] {
            let (caller, path) = (self.caller("admin", true), format!("/v3/{kind}"));
            let made = ask(router, &Method::POST, &path, Some(&caller), &body).await;
            assert_eq!(made.status, 201, "{path}: {}", made.text);
            let made: Value = serde_json::from_str(&made.text).expect("the response is JSON");
            let id = made[kind][0]["id"].as_str().expect("the object has an id");
            self.ids.insert(kind, id.to_owned());
        }
        // They require a token of ann's own.
        let name = format!("ann-{password}");
        let (signed, token) = login(cloud, &name, &password, &red).await;
        let headers = [("x-auth-token", token), ("content-type", "application/json".to_owned())];
        let roles = json!([{"id": role}]);
        let path = format!("/v3/users/{ann}/application_credentials");
        let robot = json!({"application_credential": {"name": "robot", "roles": roles}});
        let trust = json!({"trust": {"trustor_user_id": ann, "trustee_user_id": ann,
            "project_id": red, "impersonation": true, "roles": roles}});
        for (kind, one, path, body) in [
            ("application_credentials", "application_credential", path.as_str(), robot),
            ("trusts", "trust", "/v3/OS-TRUST/trusts", trust),
            ("credentials", "credential", "/v3/credentials", self.credential()),
        ] {
            let made = send(&signed, &Method::POST, path, &headers, &body).await;
            assert_eq!(made.status, 201, "{path}: {}", made.text);
            let made: Value = serde_json::from_str(&made.text).expect("the response is JSON");
            self.ids
                .insert(kind, made[one]["id"].as_str().expect("the object has an id").to_owned());
        }
        // An EC2 credential is known by its access key.
        let (access, path) = (fresh(), "/v3/credentials");
        let blob = json!({"access": access, "secret": "s"}).to_string();
        let pair = json!({"credential": {
            "user_id": ann, "type": "ec2", "blob": blob, "project_id": red}});
        let made = send(&signed, &Method::POST, path, &headers, &pair).await;
        assert_eq!(made.status, 201, "{path}: {}", made.text);
        self.ids.insert("OS-EC2", access);
    }

    /// A credential of ann's for another service.
    fn credential(&self) -> Value {
        json!({"credential": {"user_id": self.ann, "type": "cert", "blob": "x"}})
    }

    /// The path with its parts replaced, and whether each of them exists.
    pub fn fill(&self, method: &Method, pattern: &str) -> (String, bool) {
        // Managers see only the roles that they may assign.
        if (method, pattern) == (&Method::GET, "/v3/roles/{id}") {
            return (pattern.replace("{id}", &self.ids["member"]), true);
        }
        let (mut path, mut all, mut before) = (Vec::new(), true, "");
        for part in pattern.split('/') {
            let Some(name) = part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
                path.push(part.to_owned());
                before = part;
                continue;
            };
            let found = match (name, before) {
                ("tag", _) if pattern.starts_with("/v2.1/") => None,
                ("tag", _) => Some(TAG.to_owned()),
                ("project", _) => Some(self.red.clone()),
                _ => self.ids.get(before).cloned(),
            };
            all &= found.is_some();
            path.push(found.unwrap_or_else(|| NOTHING.to_owned()));
        }
        (path.join("/"), all)
    }

    /// True if a text contains the id of an object, of its user or of its project.
    pub fn shown_in(&self, text: &str) -> bool {
        let of_red = self
            .ids
            .iter()
            .filter(|(kind, _)| !["domains", "member", "external"].contains(kind))
            .map(|(_, id)| id);
        of_red.chain([&self.red, &self.ann]).any(|id| text.contains(id.as_str()))
    }

    /// A body that the operation accepts.
    pub fn body(&self, service: &str, method: &Method, pattern: &str) -> Value {
        let id = |kind: &str| self.ids.get(kind).cloned().unwrap_or_default();
        let name = fresh();
        match (service, method.as_str(), pattern.split('/').skip(2).collect::<Vec<_>>().as_slice())
        {
            ("compute", "PUT", ["servers", _]) => json!({"server": {"name": "x"}}),
            ("compute", _, ["servers", _, "metadata"]) => json!({"metadata": {"key": "value"}}),
            ("compute", _, ["servers", _, "metadata", _]) => json!({"meta": {NOTHING: "value"}}),
            ("compute", "POST" | "PUT", ["servers", _, "os-volume_attachments", ..]) => {
                json!({"volumeAttachment": {"volumeId": NOTHING}})
            }
            ("images of compute", _, ["images", _, "metadata"]) => {
                json!({"metadata": {"key": "value"}})
            }
            ("images of compute", _, ["images", _, "metadata", _]) => {
                json!({"meta": {NOTHING: "value"}})
            }
            ("accelerator", "PATCH", _) if pattern.contains("accelerator_requests") => {
                let add =
                    |path: &str, value: &str| json!({"path": path, "op": "add", "value": value});
                let bind = [
                    add("/hostname", "h1"),
                    add("/device_rp_uuid", NOTHING),
                    add("/instance_uuid", NOTHING),
                ];
                json!({ id("accelerator_requests"): bind })
            }
            ("network" | "compute", "PUT", [.., "tags"]) => json!({"tags": ["x"]}),
            ("network", "POST", ["networks"]) => json!({"network": {"name": "x"}}),
            ("network", "POST", ["subnets"]) => json!({"subnet": {
                "network_id": id("networks"), "ip_version": 4, "cidr": "198.51.100.0/25"}}),
            ("network", "POST", ["ports"]) => json!({"port": {"network_id": id("networks")}}),
            ("network", "POST", ["security-groups"]) => json!({"security_group": {"name": "x"}}),
            ("network", "POST", ["security-group-rules"]) => json!({"security_group_rule": {
                "security_group_id": id("security-groups"), "direction": "egress",
                "protocol": "tcp"}}),
            ("network", "POST", ["routers"]) => json!({"router": {"name": "x"}}),
            ("network", "POST", ["floatingips"]) => {
                json!({"floatingip": {"floating_network_id": id("external")}})
            }
            ("network", "PUT", ["routers", _, "add_router_interface"]) => {
                json!({"subnet_id": id("subnets")})
            }
            ("network", "PUT", ["routers", _, "remove_router_interface"]) => {
                json!({"subnet_id": id("routed")})
            }
            ("network", "PUT", ["routers", _, "add_extraroutes" | "remove_extraroutes"]) => {
                json!({"router": {"routes": []}})
            }
            ("network", "PUT" | "PATCH", ["floatingips", _]) => {
                json!({"floatingip": {"description": "y"}})
            }
            ("network", "PUT" | "PATCH", ["quotas", ..]) => json!({"quota": {"network": 7}}),
            ("network", "PUT" | "PATCH", [kind, "{id}"]) => {
                let member = kind.trim_end_matches('s').replace('-', "_");
                json!({member: {"name": "y"}})
            }
            ("image", "POST", ["images"]) => json!({"name": "x"}),
            ("image", "POST", ["images", _, "members"]) => json!({"member": "yellow"}),
            ("image", "PUT", ["images", _, "members", _]) => json!({"status": "accepted"}),
            ("image", "PATCH", ["images", _]) => {
                json!([{"op": "replace", "path": "/name", "value": "y"}])
            }
            ("identity", "POST", ["users"]) => json!({"user": {"name": name, "password": "p"}}),
            ("identity", "POST", ["projects"]) => json!({"project": {"name": name}}),
            ("identity", "POST", ["groups"]) => json!({"group": {"name": name}}),
            ("identity", "POST", ["roles"]) => json!({"role": {"name": name}}),
            ("identity", "PATCH", ["users", _]) => json!({"user": {"email": "a@b"}}),
            ("identity", "PATCH", ["projects", _]) => json!({"project": {"description": "y"}}),
            ("identity", "PATCH", ["groups", _]) => json!({"group": {"description": "y"}}),
            ("identity", "PUT", ["projects", _, "tags"]) => json!({"tags": ["x"]}),
            ("identity", "POST", ["OS-TRUST", "trusts"]) => json!({"trust": {
                "trustor_user_id": self.ann, "trustee_user_id": self.bob,
                "project_id": self.red, "impersonation": true, "roles": [{"id": id("roles")}]}}),
            ("identity", "POST", ["credentials"]) => self.credential(),
            ("identity", "PATCH", ["credentials", _]) => json!({"credential": {"type": "y"}}),
            ("identity", "POST", ["users", _, "credentials", "OS-EC2"]) => {
                json!({"tenant_id": self.red})
            }
            ("identity", "POST", ["users", _, "application_credentials"]) => {
                json!({"application_credential": {"name": name, "roles": [{"id": id("roles")}]}})
            }
            _ => json!({}),
        }
    }
}

const TAG: &str = "gold";

/// A unique text.
fn fresh() -> String {
    kilonova_ids::ImageId::new_v4().to_string().replace('-', "")
}

/// The identity service that validates its own tokens, and a token of the user on the project.
async fn login(cloud: &Cloud, user: &str, password: &str, project: &str) -> (Router, String) {
    let identity = cloud.identity.clone();
    let signed = kilonova_wire::mount(
        kilonova_identity::routes(identity.clone()),
        kilonova_identity::service(),
        "",
        std::sync::Arc::new(identity),
    );
    let body = json!({"auth": {
        "identity": {"methods": ["password"], "password": {
            "user": {"name": user, "domain": {"id": "default"}, "password": password}}},
        "scope": {"project": {"id": project}},
    }});
    let request = Request::post("/v3/auth/tokens")
        .header("host", "cloud:5000")
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .expect("the request is valid");
    let response = signed.clone().oneshot(request).await.expect("the router is infallible");
    assert_eq!(response.status(), 201, "{user}");
    let token = response.headers()["x-subject-token"]
        .to_str()
        .expect("the login returns a token")
        .to_owned();
    (signed, token)
}
