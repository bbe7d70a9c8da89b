//! Where an answer differs from what upstream's rules alone say, on purpose.

use axum::http::Method;
use kilonova_access::Operation;

/// Operation, caller, and the reason. A deviation from upstream is in docs/compatibility.md too.
const EXCUSED: &[(&str, &str, &str)] = &[
    (
        "image PUT /v2/images/{id}/members/{member}",
        "member",
        "Glance's code refuses the owner after the rule has let it: a member answers for itself",
    ),
    (
        "image PUT /v2/images/{id}/members/{member}",
        "manager",
        "as for a member of the owning project",
    ),
    (
        "network GET /v2.0/quotas",
        "manager",
        "Neutron shows the quotas of all projects to whoever may see those of its own",
    ),
];

pub type Excuse = (&'static str, &'static str);

/// All that is excused.
pub fn all() -> impl Iterator<Item = Excuse> {
    EXCUSED.iter().map(|(place, caller, _)| (*place, *caller))
}

/// The excuse of this caller at this operation.
pub fn excuse(place: &str, caller: &str) -> Option<Excuse> {
    all().find(|one| *one == (place, caller))
}

/// Whether the path is open to everybody: version documents, login, and the change of a password that
/// has expired.
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

/// What whoever has a token may read, since upstream too asks no rule there.
pub fn anyone(operation: &Operation) -> bool {
    const PATHS: [&str; 10] = [
        "/v2.1/versions/{id}",
        "/v2.1/flavors",
        "/v2.1/flavors/detail",
        "/v2.1/flavors/{id}",
        "/v2/schemas/{name}",
        "/v2/schemas/metadefs/{name}",
        "/v2/info/import",
        "/v2/info/stores",
        "/v2.0/extensions",
        "/v2.0/extensions/{alias}",
    ];
    operation.method == Method::GET && PATHS.contains(&operation.path.as_str())
}
