//! Intended differences between our responses and upstream's rules.

use axum::http::Method;
use kilonova_access::Operation;

/// Operation, caller, and the reason. docs/compatibility.md lists deviations from upstream too.
const EXCUSED: &[(&str, &str, &str)] = &[
    (
        "image PUT /v2/images/{id}/members/{member}",
        "member",
        "Glance's code refuses the owner after the rule has passed: only the member may respond",
    ),
    (
        "image PUT /v2/images/{id}/members/{member}",
        "manager",
        "as for a member of the owning project",
    ),
    ("identity POST /v3/domains", "admin", "there is one domain, and a second one is refused"),
    ("identity POST /v3/domains", "other_admin", "as for an administrator of the project"),
    (
        "identity DELETE /v3/domains/{id}",
        "admin",
        "Keystone's code refuses it as well while the domain is enabled, after the rule has passed",
    ),
    ("identity DELETE /v3/domains/{id}", "other_admin", "as for an administrator of the project"),
    (
        "network GET /v2.0/quotas",
        "manager",
        "Neutron shows the quotas of all projects to any caller that may see its own project's",
    ),
];

/// Neutron's code shows the quotas of a project to all of its callers, and asks for the rule for other projects only.
const OWN_QUOTAS: [&str; 4] = [
    "network GET /v2.0/quotas/{project}",
    "network GET /v2.0/quotas/{project}/default",
    "network GET /v2.0/quotas/{project}/details",
    "network GET /v2.0/quotas/{project}/details.json",
];

/// The callers in the objects' project that the rule of [`OWN_QUOTAS`] refuses.
const BELOW_MANAGER: [&str; 4] = ["chef", "reader", "service", "member"];

pub type Excuse = (&'static str, &'static str);

/// All exceptions.
pub fn all() -> impl Iterator<Item = Excuse> {
    let own = OWN_QUOTAS.into_iter().flat_map(|place| BELOW_MANAGER.map(|caller| (place, caller)));
    EXCUSED.iter().map(|(place, caller, _)| (*place, *caller)).chain(own)
}

/// The exception of this caller for this operation.
pub fn excuse(place: &str, caller: &str) -> Option<Excuse> {
    all().find(|one| *one == (place, caller))
}

/// True if the path needs no authentication: version documents, login, and the change of an expired
/// password.
pub fn open(path: &str) -> bool {
    [
        "",
        "/",
        "/v2",
        "/v2/",
        "/v2.0",
        "/v2.0/",
        "/v2.1",
        "/v2.1/",
        "/v3",
        "/v3/",
        "/versions",
        "/versions/v2.0",
        "/v3/auth/tokens",
        "/v3/users/{id}/password",
    ]
    .contains(&path)
}

/// Operations that any token may use, because upstream checks no rule there either.
pub fn anyone(operation: &Operation) -> bool {
    const PATHS: [&str; 13] = [
        "/v2.1/versions/{id}",
        "/v2.1/flavors",
        "/v2.1/flavors/detail",
        "/v2.1/flavors/{id}",
        "/v2/schemas/{name}",
        "/v2/schemas/metadefs/{name}",
        "/v2/info/import",
        "/v2/info/stores",
        "/v2/info/usage",
        "/v2.0/extensions",
        "/v2.0/extensions/{alias}",
        "/v2.0/quotas/project",
        "/v2.0/quotas/tenant",
    ];
    operation.method == Method::GET && PATHS.contains(&operation.path.as_str())
}
