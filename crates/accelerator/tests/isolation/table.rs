//! One row for each operation: who may call it, and how it treats other projects' objects.

/// The objects that a call reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Objects of the cloud, not of a project.
    Cloud,
    /// One request: not found unless it is the caller's, or the caller is an administrator or a
    /// service.
    Owners,
    /// A list without other callers' objects, by the same rule.
    Listed,
}

/// The body of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    None,
    Profile,
    Attribute,
    Program,
    Request,
    Bind,
    Unbind,
}

/// An operation.
#[derive(Debug)]
pub struct Row {
    pub method: &'static str,
    /// The route in the sources.
    pub route: &'static str,
    /// The path of the call.
    pub path: &'static str,
    pub body: Body,
    /// The roles that may call it; empty for all.
    pub roles: &'static [&'static str],
    /// True if it requires a service token.
    pub token: bool,
    pub reach: Reach,
    /// The status for a permitted caller.
    pub status: u16,
}

const READERS: &[&str] = &["reader", "member", "manager", "admin"];
const MEMBERS: &[&str] = &["member", "manager", "admin", "service"];
const MANAGERS: &[&str] = &["manager", "admin"];
const ADMINS: &[&str] = &["admin"];
const ARQS: &str = "/accelerator_requests";
const ARQ: &str = "/accelerator_requests/{uuid}";

const fn cloud(
    method: &'static str,
    route: &'static str,
    path: &'static str,
    body: Body,
    roles: &'static [&'static str],
    status: u16,
) -> Row {
    Row { method, route, path, body, roles, token: false, reach: Reach::Cloud, status }
}

const fn request(
    method: &'static str,
    route: &'static str,
    path: &'static str,
    body: Body,
    token: bool,
    reach: Reach,
    status: u16,
) -> Row {
    Row { method, route, path, body, roles: MEMBERS, token, reach, status }
}

pub const TABLE: &[Row] = &[
    cloud("GET", "/", "/", Body::None, &[], 200),
    cloud("GET", "/v2", "/v2", Body::None, &[], 200),
    cloud("GET", "/v2/", "/v2/", Body::None, &[], 200),
    cloud("GET", "/devices", "/v2/devices", Body::None, MANAGERS, 200),
    cloud("GET", "/devices/{uuid}", "/v2/devices/{device}", Body::None, MANAGERS, 200),
    cloud("POST", "/devices/{uuid}/enable", "/v2/devices/{device}/enable", Body::None, ADMINS, 204),
    cloud(
        "POST",
        "/devices/{uuid}/disable",
        "/v2/devices/{device}/disable",
        Body::None,
        ADMINS,
        204,
    ),
    cloud("GET", "/deployables", "/v2/deployables", Body::None, MANAGERS, 200),
    cloud("GET", "/deployables/{uuid}", "/v2/deployables/{deployable}", Body::None, MANAGERS, 200),
    cloud(
        "PATCH",
        "/deployables/{uuid}/program",
        "/v2/deployables/{deployable}/program",
        Body::Program,
        ADMINS,
        409,
    ),
    cloud(
        "PATCH",
        "/deployables/{uuid}/program/{again}",
        "/v2/deployables/{deployable}/program/{deployable}",
        Body::Program,
        ADMINS,
        409,
    ),
    cloud("GET", "/attributes", "/v2/attributes", Body::None, MANAGERS, 200),
    cloud("GET", "/attributes/{uuid}", "/v2/attributes/{attribute}", Body::None, MANAGERS, 200),
    cloud("POST", "/attributes", "/v2/attributes", Body::Attribute, ADMINS, 201),
    cloud("DELETE", "/attributes/{uuid}", "/v2/attributes/{attribute}", Body::None, ADMINS, 204),
    cloud("GET", "/device_profiles", "/v2/device_profiles", Body::None, READERS, 200),
    cloud(
        "GET",
        "/device_profiles/{uuid_or_name}",
        "/v2/device_profiles/{profile}",
        Body::None,
        READERS,
        200,
    ),
    cloud("POST", "/device_profiles", "/v2/device_profiles", Body::Profile, ADMINS, 201),
    cloud(
        "DELETE",
        "/device_profiles",
        "/v2/device_profiles?value={profile}",
        Body::None,
        ADMINS,
        204,
    ),
    cloud(
        "DELETE",
        "/device_profiles/{uuid_or_name}",
        "/v2/device_profiles/{profile}",
        Body::None,
        ADMINS,
        204,
    ),
    Row {
        roles: READERS,
        ..request("GET", ARQS, "/v2/accelerator_requests", Body::None, false, Reach::Listed, 200)
    },
    Row {
        roles: READERS,
        ..request(
            "GET",
            ARQ,
            "/v2/accelerator_requests/{arq}",
            Body::None,
            false,
            Reach::Owners,
            200,
        )
    },
    Row {
        roles: READERS,
        ..request(
            "GET",
            ARQ,
            "/v2/accelerator_requests/{bound}",
            Body::None,
            false,
            Reach::Owners,
            200,
        )
    },
    request("POST", ARQS, "/v2/accelerator_requests", Body::Request, false, Reach::Cloud, 201),
    request("PATCH", ARQS, "/v2/accelerator_requests", Body::Bind, true, Reach::Owners, 202),
    request("PATCH", ARQS, "/v2/accelerator_requests", Body::Unbind, true, Reach::Owners, 202),
    request("PATCH", ARQ, "/v2/accelerator_requests/{arq}", Body::Bind, true, Reach::Owners, 202),
    request(
        "DELETE",
        ARQS,
        "/v2/accelerator_requests?arqs={arq}",
        Body::None,
        false,
        Reach::Owners,
        204,
    ),
    request(
        "DELETE",
        ARQS,
        "/v2/accelerator_requests?instance={server}",
        Body::None,
        true,
        Reach::Owners,
        204,
    ),
    request("DELETE", ARQ, "/v2/accelerator_requests/{arq}", Body::None, false, Reach::Owners, 204),
    cloud("GET", "/kilonova/device_health", "/v2/kilonova/device_health", Body::None, ADMINS, 200),
    cloud(
        "GET",
        "/kilonova/device_health/{uuid}",
        "/v2/kilonova/device_health/{device}",
        Body::None,
        ADMINS,
        200,
    ),
    cloud("GET", "/kilonova/device_orders", "/v2/kilonova/device_orders", Body::None, ADMINS, 200),
    cloud(
        "GET",
        "/kilonova/handle_changes",
        "/v2/kilonova/handle_changes",
        Body::None,
        ADMINS,
        200,
    ),
];
