//! The operations that are not supported, with the reason and the responses at 2.1 and at 2.104.

/// An operation, or all operations below a path that ends with `*`.
pub struct Unsupported {
    pub methods: &'static [&'static str],
    pub path: &'static str,
    pub why: &'static str,
    pub first: u16,
    pub last: u16,
}

const ANY: &[&str] = &["GET", "POST", "PUT", "DELETE"];

const fn out(path: &'static str, why: &'static str) -> Unsupported {
    Unsupported { methods: ANY, path, why, first: 404, last: 404 }
}

const fn alias(methods: &'static [&'static str], path: &'static str, first: u16) -> Unsupported {
    let why = "another name of /servers until 2.102: see kilonova-compute's tests";
    Unsupported { methods, path, why, first, last: 404 }
}

const fn gone(methods: &'static [&'static str], path: &'static str) -> Unsupported {
    Unsupported { methods, path, why: "removed upstream: 410", first: 410, last: 410 }
}

pub const UNSUPPORTED: &[Unsupported] = &[
    gone(ANY, "/os-agents*"),
    gone(ANY, "/os-cells*"),
    gone(ANY, "/os-certificates*"),
    gone(ANY, "/os-cloudpipe*"),
    gone(ANY, "/os-fixed-ips*"),
    gone(ANY, "/os-floating-ip-dns*"),
    gone(ANY, "/os-floating-ips-bulk*"),
    gone(ANY, "/os-fping*"),
    gone(ANY, "/os-security-group-default-rules*"),
    gone(&["POST", "DELETE"], "/os-networks*"),
    gone(&["POST", "DELETE"], "/os-tenant-networks*"),
    gone(ANY, "/servers/{server_id}/os-virtual-interfaces"),
    gone(ANY, "/servers/{server_id}/consoles*"),
    out("/os-networks*", "a proxy for Neutron, below 2.36"),
    out("/os-tenant-networks*", "a proxy for Neutron, below 2.36"),
    out("/os-floating-ip-pools", "a proxy for Neutron, below 2.36"),
    out("/os-floating-ips*", "a proxy for Neutron, below 2.36"),
    out("/os-security-group-rules*", "a proxy for Neutron, below 2.36"),
    Unsupported {
        methods: &["POST", "PUT", "DELETE"],
        path: "/os-security-groups*",
        why: "a proxy for Neutron, below 2.36, which only reads",
        first: 404,
        last: 404,
    },
    alias(&["GET"], "/os-volumes_boot", 200),
    alias(&["GET"], "/os-volumes_boot/detail", 200),
    alias(&["POST", "PUT"], "/os-volumes_boot*", 400),
    alias(&["GET", "DELETE"], "/os-volumes_boot*", 404),
    out("/os-volumes*", "needs Cinder"),
    out("/os-snapshots*", "needs Cinder"),
    out("/os-assisted-volume-snapshots*", "needs Cinder"),
    out("/os-baremetal-nodes*", "a proxy for Ironic, below 2.36"),
    out("/os-aggregates/{id}/images", "hosts fetch an image only when a server needs it"),
    out("/os-hypervisors/{id}/uptime", "agents do not report the uptime of their host: 501"),
    out("/os-hosts/{id}/reboot", "no driver controls the power of a host: 501"),
    out("/os-hosts/{id}/shutdown", "no driver controls the power of a host: 501"),
    out("/os-hosts/{id}/startup", "no driver controls the power of a host: 501"),
    out(
        "/os-instance_usage_audit_log*",
        "there is no periodic audit of usage; /os-simple-tenant-usage is exact",
    ),
    Unsupported {
        methods: &["GET"],
        path: "/os-console-auth-tokens/{id}",
        why: "served from 2.31 on; 400 before, as upstream, which no longer has RDP consoles",
        first: 400,
        last: 404,
    },
    Unsupported {
        methods: &["POST", "DELETE"],
        path: "/servers/{server_id}/os-interface*",
        why: "needs Neutron; a server has no interfaces",
        first: 404,
        last: 404,
    },
    Unsupported {
        methods: &["GET"],
        path: "/servers/{server_id}/os-interface/{id}",
        why: "needs Neutron; a server has no interfaces",
        first: 404,
        last: 404,
    },
    Unsupported {
        methods: &["GET"],
        path: "/servers/{server_id}/ips/{id}",
        why: "needs Neutron; a server has no addresses",
        first: 404,
        last: 404,
    },
    Unsupported {
        methods: &["POST", "PUT"],
        path: "/servers/{server_id}/os-volume_attachments*",
        why: "needs Cinder: see kilonova-compute's tests; the body is checked first, as upstream does",
        first: 400,
        last: 400,
    },
    Unsupported {
        methods: &["DELETE"],
        path: "/servers/{server_id}/os-volume_attachments*",
        why: "needs Cinder; a server has no volumes",
        first: 404,
        last: 404,
    },
    Unsupported {
        methods: &["GET"],
        path: "/servers/{server_id}/os-volume_attachments/{id}",
        why: "needs Cinder; a server has no volumes",
        first: 404,
        last: 404,
    },
    Unsupported {
        methods: &["POST"],
        path: "/servers/{server_id}/migrations/{id}/action",
        why: "needs a live migration in progress: see kilonova-compute's tests",
        first: 404,
        last: 400,
    },
    out(
        "/servers/{server_id}/migrations/*",
        "needs a live migration in progress: see kilonova-compute's tests",
    ),
    Unsupported {
        methods: &["POST"],
        path: "/servers/{server_id}/shares",
        why: "needs Manila; the body is checked first, as upstream does",
        first: 404,
        last: 400,
    },
    out("/servers/{server_id}/shares/*", "needs Manila; a server has no shares"),
];

const NETWORK: &str = "needs Neutron";

/// Actions of `POST /servers/{id}/action` without a row.
pub const ACTIONS: &[(&str, &str)] = &[
    ("addFixedIp", NETWORK),
    ("removeFixedIp", NETWORK),
    ("addFloatingIp", NETWORK),
    ("removeFloatingIp", NETWORK),
    ("addSecurityGroup", NETWORK),
    ("removeSecurityGroup", NETWORK),
];
