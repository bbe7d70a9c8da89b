//! Every operation of every service, in the routers' form, called by every kind of caller and
//! compared with the decisions of upstream's services.
//!
//! `upstream/SERVICE.txt` lists for each upstream rule which of the callers below pass it for an
//! object of the project `red` and its user: computed from the services' own tables by oslo.policy
//! 6 (Nova 34, Cyborg 17, Glance 33, Neutron 29, Keystone 30). An operation without a rule fails
//! here, and so does a rule that upstream does not have.

mod credential;
mod differences;
mod objects;
mod request;
mod upstream;

use axum::Router;
use axum::http::Method;
use differences::excuse;
use kilonova_access::{Guard, Operation};
use kilonova_policy::Rule;
use kilonova_testkit::shared;
use kilonova_wire::noauth::NoAuth;
use objects::{NOTHING, Objects};
use request::{Answer, ask};
use serde_json::{Value, json};
use upstream::Upstream;

use crate::fuzz::cloud::{Cloud, clouds};

/// A caller: its name in the data, its role, and whether it belongs to the objects' project. `chef`
/// is an unknown role.
const CALLERS: [(&str, &str, bool); 8] = [
    ("chef", "chef", true),
    ("reader", "reader", true),
    ("other_member", "member", false),
    ("service", "service", true),
    ("member", "member", true),
    ("manager", "manager", true),
    ("admin", "admin", true),
    ("other_admin", "admin", false),
];

pub struct Service {
    pub name: &'static str,
    pub operations: Vec<Operation>,
    table: &'static [Rule],
    pub upstream: Upstream,
}

pub fn services() -> Vec<Service> {
    let service = |name, operations, table, text| Service {
        name,
        operations,
        table,
        upstream: Upstream::read(text),
    };
    let compute = include_str!("upstream/compute.txt");
    vec![
        service("compute", kilonova_compute::operations(), kilonova_compute_app::RULES, compute),
        // Nova has no rules for its proxy of the image service, which applies its own rules.
        service(
            "images of compute",
            kilonova_compute::image_operations(),
            kilonova_image::RULES,
            include_str!("upstream/image.txt"),
        ),
        service("enrollment", kilonova_enroll::operations(), kilonova_compute_app::RULES, compute),
        service(
            "accelerator",
            kilonova_accelerator::operations(),
            kilonova_accelerator::RULES,
            include_str!("upstream/accelerator.txt"),
        ),
        service(
            "image",
            kilonova_image::operations(),
            kilonova_image::RULES,
            include_str!("upstream/image.txt"),
        ),
        service(
            "network",
            kilonova_network::operations(),
            kilonova_network::RULES,
            include_str!("upstream/network.txt"),
        ),
        service(
            "identity",
            kilonova_identity::operations(),
            kilonova_identity::RULES,
            include_str!("upstream/identity.txt"),
        ),
    ]
}

/// The router of a service. Enrollment's does not include its listener for hosts.
fn router(cloud: &Cloud, service: &str) -> Router {
    if service == "enrollment" {
        let routes = kilonova_enroll::operator_routes(None, &cloud.compute.policy);
        let service = kilonova_compute::service();
        return kilonova_wire::mount(routes, service, "", std::sync::Arc::new(NoAuth));
    }
    let service = if service == "images of compute" { "compute" } else { service };
    cloud.routers[service].clone()
}

/// The action that leads to the rule, with its parameters.
pub fn action(name: &str) -> Value {
    let needs = match name {
        "reboot" => json!({"type": "SOFT"}),
        "createImage" => json!({"name": "x"}),
        "createBackup" => json!({"name": "x", "backup_type": "daily", "rotation": 1}),
        "changePassword" => json!({"adminPass": "x"}),
        "resize" => json!({"flavorRef": NOTHING}),
        "rebuild" => json!({"imageRef": NOTHING}),
        "addSecurityGroup" | "removeSecurityGroup" => json!({"name": "x"}),
        "addFixedIp" => json!({"networkId": NOTHING}),
        "removeFixedIp" | "addFloatingIp" | "removeFloatingIp" => json!({"address": "192.0.2.9"}),
        "os-resetState" => json!({"state": "active"}),
        "os-getVNCConsole" => json!({"type": "novnc"}),
        "os-getSPICEConsole" => json!({"type": "spice-html5"}),
        "os-getSerialConsole" => json!({"type": "serial"}),
        "os-getRDPConsole" => json!({"type": "rdp-html5"}),
        "os-getMKSConsole" => json!({"type": "webmks"}),
        "os-getConsoleOutput" => json!({}),
        "os-migrateLive" => json!({"host": null, "block_migration": false,
            "disk_over_commit": false}),
        "evacuate" => json!({"onSharedStorage": false}),
        _ => Value::Null,
    };
    json!({name: needs})
}

/// True if the response is a refusal by this rule.
fn refused_by(answer: &Answer, rule: &str) -> bool {
    let mut rest = answer.text.as_str();
    while let Some(at) = rest.find(rule) {
        rest = &rest[at + rule.len()..];
        if !rest.starts_with(|next: char| next.is_alphanumeric() || ":_".contains(next)) {
            return answer.status == 403;
        }
    }
    false
}

#[test]
fn every_operation_has_rules_that_upstream_has_or_that_are_ours() {
    let mut without = Vec::new();
    for service in services() {
        let undefined = kilonova_access::undefined(&service.operations, service.table);
        assert_eq!(undefined, Vec::<String>::new(), "{}", service.name);
        for operation in &service.operations {
            for (_, rule) in operation.rules() {
                let place = format!("{} {}: {rule}", operation.method, operation.path);
                assert!(
                    service.upstream.passes(rule, "admin").is_some(),
                    "no upstream data for {place}"
                );
            }
        }
        for Operation { method, path, guard } in &service.operations {
            let free = match guard {
                Guard::Open => differences::open(path),
                // `Own` always has a rule, and the next test checks the responses of `Anyone`.
                Guard::Anyone | Guard::Own(_) => true,
                Guard::Object(rules) => !rules.is_empty(),
                Guard::Action(actions) => !actions.is_empty(),
            };
            if !free {
                without.push(format!("{} {method} {path}", service.name));
            }
        }
    }
    assert_eq!(without.len(), 0, "without a rule:\n{}", without.join("\n"));
}

/// The stores share the operations.
#[tokio::test]
async fn each_caller_has_upstreams_permissions() {
    let mut excused = Vec::new();
    for (share, cloud) in shared(clouds().await) {
        let (mut wrong, mut asked) = (Vec::new(), 0);
        for service in services() {
            let router = router(&cloud, service.name);
            let mut things = Objects::new(&cloud, service.name).await;
            let operations = service.operations.iter().enumerate();
            for (_, operation) in operations.filter(|(at, _)| share.has(*at)) {
                let place = format!("{} {} {}", service.name, operation.method, operation.path);
                for trial in trials(&service, operation) {
                    asked += 1;
                    let answer = trial.ask(&router, operation, &things, service.name).await;
                    if let Some(fault) = trial.judge(&answer, operation, &things) {
                        match excuse(&place, trial.name) {
                            Some(one) => excused.push(one),
                            None => wrong.push(format!("{place} {fault}")),
                        }
                    }
                    let changed = (200..300).contains(&answer.status)
                        && operation.method != Method::GET
                        && operation.path.contains('{');
                    if changed {
                        things = Objects::new(&cloud, service.name).await;
                    }
                }
            }
        }
        let count = wrong.len();
        assert_eq!(count, 0, "{}: of {asked}:\n{}", cloud.store, wrong.join("\n"));
        assert!(asked > share.least(4000), "{asked} requests were sent");
        println!("{}: {asked} requests", cloud.store);
    }
    let unused = differences::all().find(|one| !excused.contains(one));
    assert_eq!(unused, None, "every exception is needed");
}

/// One request to an operation.
struct Trial {
    /// The caller's name; empty for no authentication.
    name: &'static str,
    who: Option<(&'static str, bool)>,
    action: Option<&'static str>,
    /// The rules, one of which decides, and whether the caller passes one of them.
    rules: Vec<&'static str>,
    may: bool,
    /// True if the caller would pass for an object of its own project.
    may_own: bool,
}

fn trials(service: &Service, operation: &Operation) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add =
        |caller: Option<(&'static str, &'static str, bool)>, action, rules: Vec<&'static str>| {
            let (name, role) = caller.map_or(("", ""), |(name, role, _)| (name, role));
            let passes = |who: &str| {
                rules.is_empty()
                    || rules.iter().any(|rule| service.upstream.passes(rule, who) == Some(true))
            };
            let who = caller.map(|(_, role, own)| (role, own));
            let may_own = passes(role);
            // Cyborg checks its rules against the caller's own project, and then looks for the
            // object among those of the project, or among all for an administrator.
            let may = match (service.name, name) {
                ("accelerator", "other_admin") => may_own,
                _ => passes(name),
            };
            trials.push(Trial { name, who, action, rules, may, may_own });
        };
    if operation.guard != Guard::Open {
        add(None, None, Vec::new());
    }
    for caller in CALLERS.map(Some) {
        match operation.guard {
            Guard::Open => {}
            Guard::Anyone => add(caller, None, Vec::new()),
            // The request determines which of the rules applies.
            Guard::Object(rules) if operation.path == TRUSTS && operation.method == Method::GET => {
                rules.iter().for_each(|rule| add(caller, None, vec![rule]));
            }
            Guard::Object(rules) => add(caller, None, rules.to_vec()),
            Guard::Own(rule) => add(caller, None, vec![rule]),
            Guard::Action(actions) => {
                for (action, rule) in actions {
                    add(caller, Some(*action), vec![rule]);
                }
            }
        }
    }
    trials
}

impl Trial {
    async fn ask(
        &self,
        router: &Router,
        operation: &Operation,
        things: &Objects,
        service: &str,
    ) -> Answer {
        let (mut path, _) = things.fill(&operation.method, &operation.path);
        match self.rules.as_slice() {
            ["identity:list_trusts_for_trustor"] => {
                path += &format!("?trustor_user_id={}", things.ann)
            }
            ["identity:list_trusts_for_trustee"] => {
                path += &format!("?trustee_user_id={}", things.ann)
            }
            _ => {}
        }
        let body = match self.action {
            Some(name) => action(name),
            None => things.body(service, &operation.method, &operation.path),
        };
        let caller = self.who.map(|(role, own)| things.caller(role, own));
        ask(router, &operation.method, &path, caller.as_ref(), &body).await
    }

    /// The error in the response.
    fn judge(&self, answer: &Answer, operation: &Operation, things: &Objects) -> Option<String> {
        let Some((_, own)) = self.who else {
            return (answer.status != 401)
                .then(|| format!("an unauthenticated caller gets {}", answer.status));
        };
        let by_rule = self.rules.iter().any(|rule| refused_by(answer, rule));
        let (filled, complete) = things.fill(&operation.method, &operation.path);
        // Flavors and similar objects have no owner, and a new image belongs to its creator.
        let nobodys = ["/v2.1/flavors/", "/v2.1/os-aggregates/", "/device_profiles/"];
        let makes = (&operation.method, operation.path.as_str()) == (&Method::POST, "/v2/images");
        let owned = !makes && !nobodys.iter().any(|kind| operation.path.contains(kind));
        // The body names the accelerator request.
        let binds =
            operation.method == Method::PATCH && operation.path.ends_with("/accelerator_requests");
        let empty = filled.contains(NOTHING) && self.lone(&filled);
        let on_thing = binds || owned && filled != operation.path && !empty;
        let read = operation.method == Method::GET && operation.path == filled;
        let reads_thing = operation.method == Method::GET && on_thing && complete;
        let right = match operation.guard {
            Guard::Anyone if !differences::anyone(operation) => matches!(answer.status, 404 | 410),
            Guard::Open | Guard::Anyone => !matches!(answer.status, 401 | 403),
            // The route checks the rule for the caller's own project; the handler checks it for
            // others' objects.
            Guard::Own(_) | Guard::Action(_) if own || !on_thing => {
                let lost = reads_thing && self.may_own && answer.status == 404;
                by_rule != self.may_own && answer.status != 401 && !lost
            }
            Guard::Own(_) | Guard::Action(_) => match self.may {
                true => !by_rule && answer.status != 401 && !(reads_thing && answer.status == 404),
                // A removed action (410) reveals nothing about the object.
                false => matches!(answer.status, 403 | 404 | 410),
            },
            // Delegation requires a real token; the rule is checked first.
            Guard::Object(_) if self.may && hands_on(operation) => answer.status == 401,
            // Tested with real tokens elsewhere: every caller without one is refused.
            Guard::Object(_) if operation.path == "/v3/auth/tokens" => answer.status == 401,
            Guard::Object(_) => match if owned { self.may } else { self.may_own } {
                true => {
                    let hidden = answer.status == 404 && complete && on_thing;
                    !matches!(answer.status, 401 | 403) && !hidden
                }
                // A list omits the objects that the caller must not see.
                false if read && answer.status == 200 => !things.shown_in(&answer.text),
                false => matches!(answer.status, 403 | 404),
            },
        };
        let (action, name, may) = (self.action.unwrap_or_default(), self.name, self.may);
        let Answer { status, text } = answer;
        let text: String = text.chars().take(300).collect();
        let expected = if may { "may" } else { "may not" };
        (!right).then(|| format!("{action}: {name}, who {expected}, gets {status} {text}"))
    }

    /// True if no object in the path exists.
    fn lone(&self, filled: &str) -> bool {
        filled.split('/').filter(|part| part.len() > 30).all(|part| part == NOTHING)
    }
}

const TRUSTS: &str = "/v3/OS-TRUST/trusts";

/// True if the operation is about trusts or application credentials, which some delegated tokens must not even read,
/// or uses a credential, which belongs to a project.
fn hands_on(operation: &Operation) -> bool {
    let kinds = [
        TRUSTS,
        "/v3/users/{user}/application_credentials",
        "/v3/users/{user}/credentials/OS-EC2",
        "/v3/credentials",
    ];
    kinds.iter().any(|kind| operation.path.starts_with(kind))
}
