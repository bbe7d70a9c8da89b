//! The resource kinds of this service, and the functions of `app` that serve each HTTP verb.

use jiff::Timestamp;
use kilonova_access::{Caller, Guard};
use kilonova_store::Tx;
use kilonova_wire::Refusal;

use super::listing::Collection;
use crate::app::{floating, groups, id, networks, ports, routers, rules, subnets, targets};
use crate::attributes::{Attribute, of_new, owner};
use crate::record::Body;
use crate::{Error, NetworkOptions};

/// A resource kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResourceKind {
    Network,
    Subnet,
    Port,
    Group,
    Rule,
    Router,
    FloatingIp,
}

/// The caller, the options and the time of a request.
pub(super) struct RequestContext<'a> {
    pub options: &'a NetworkOptions,
    pub caller: &'a Caller,
    pub now: Timestamp,
}

/// The policy guards of a kind's routes.
pub(super) struct Guards {
    pub create: Guard,
    pub get: Guard,
    pub update: Guard,
    pub delete: Guard,
    pub tags: Option<Tags>,
}

/// The policy rules for reading, setting and deleting a kind's tags.
pub(super) struct Tags {
    pub get: &'static str,
    pub set: &'static str,
    pub drop: &'static str,
    pub guards: [Guard; 3],
}

impl ResourceKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Network,
        Self::Subnet,
        Self::Port,
        Self::Group,
        Self::Rule,
        Self::Router,
        Self::FloatingIp,
    ];

    /// The kind with this path segment.
    pub fn of(path: &str) -> Option<Self> {
        Some(match path {
            "networks" => Self::Network,
            "subnets" => Self::Subnet,
            "ports" => Self::Port,
            "security-groups" => Self::Group,
            "security-group-rules" => Self::Rule,
            "routers" => Self::Router,
            "floatingips" => Self::FloatingIp,
            _ => return None,
        })
    }

    /// The key of a single resource in a body, also used in rule names.
    pub fn member(self) -> &'static str {
        match self {
            Self::Network => networks::KIND,
            Self::Subnet => subnets::KIND,
            Self::Port => ports::KIND,
            Self::Group => groups::KIND,
            Self::Rule => rules::KIND,
            Self::Router => routers::KIND,
            Self::FloatingIp => floating::KIND,
        }
    }

    pub fn collection(self) -> Collection {
        let (path, key) = match self {
            Self::Network => ("networks", "networks"),
            Self::Subnet => ("subnets", "subnets"),
            Self::Port => ("ports", "ports"),
            Self::Group => ("security-groups", "security_groups"),
            Self::Rule => ("security-group-rules", "security_group_rules"),
            Self::Router => ("routers", "routers"),
            Self::FloatingIp => ("floatingips", "floatingips"),
        };
        let hidden = match self {
            Self::Subnet => &["shared"][..],
            _ => &[][..],
        };
        Collection { path, key, primary_key: "id", hidden }
    }

    fn attributes(self) -> &'static [Attribute] {
        match self {
            Self::Network => networks::ATTRIBUTES,
            Self::Subnet => subnets::ATTRIBUTES,
            Self::Port => ports::ATTRIBUTES,
            Self::Group => groups::ATTRIBUTES,
            Self::Rule => rules::ATTRIBUTES,
            Self::Router => routers::ATTRIBUTES,
            Self::FloatingIp => floating::ATTRIBUTES,
        }
    }

    /// Attributes that filters and sort keys may name.
    pub fn known(self) -> Vec<&'static str> {
        let mut known: Vec<&str> = self.attributes().iter().map(|a| a.name).collect();
        known.extend([
            "id",
            "project_id",
            "tenant_id",
            "revision_number",
            "created_at",
            "updated_at",
        ]);
        known.extend(match self {
            Self::Network => &["status", "subnets", "availability_zones"][..],
            Self::Subnet => &["shared"][..],
            Self::Rule => &[][..],
            Self::Port => &["status", "ip_allocation", "binding:vif_type", "ip_address"][..],
            Self::Group => &["shared", "security_group_rules"][..],
            Self::Router => &["status", "availability_zones"][..],
            Self::FloatingIp => &["status", "router_id"][..],
        });
        known
    }

    /// Refuses the body of a new resource with the reasons of [`ResourceKind::create`] that do not depend on the
    /// database.
    pub fn check_new(self, caller: &Caller, sent: &Body) -> Result<(), Refusal> {
        // A rule belongs to the project of its group.
        if self != Self::Rule {
            owner(caller, sent)?;
        }
        of_new(self.attributes(), sent).map(|_| ())
    }

    pub fn create(
        self,
        tx: &mut Tx<'_>,
        request: &RequestContext<'_>,
        sent: &Body,
    ) -> Result<Body, Error> {
        let RequestContext { options, caller, now } = *request;
        Ok(match self {
            Self::Network => {
                let made = networks::create(tx, options, caller, sent, now)?;
                networks::shown(tx, &made, caller)?
            }
            Self::Subnet => {
                let (made, network) = subnets::create(tx, caller, sent, now)?;
                subnets::view(&made, &network, caller)
            }
            Self::Port => {
                let (made, network) = ports::create(tx, caller, sent, now)?;
                ports::view(&made, &network, options, caller)
            }
            Self::Group => {
                let made = groups::create(tx, caller, sent, now)?;
                groups::shown(tx, &made)?
            }
            Self::Rule => rules::view(&rules::create(tx, caller, sent, now)?),
            Self::Router => {
                let made = routers::create(tx, caller, sent, now)?;
                routers::shown(tx, &made, caller)?
            }
            Self::FloatingIp => {
                let made = floating::create(tx, caller, sent, now)?;
                floating::shown(tx, &made, caller)?
            }
        })
    }

    pub fn show(
        self,
        tx: &mut Tx<'_>,
        request: &RequestContext<'_>,
        text: &str,
    ) -> Result<Body, Error> {
        let RequestContext { options, caller, .. } = *request;
        Ok(match self {
            Self::Network => {
                let network = networks::seen(tx, caller, id(self.member(), text)?)?;
                networks::shown(tx, &network, caller)?
            }
            Self::Subnet => {
                let (subnet, network) = subnets::seen(tx, caller, id(self.member(), text)?)?;
                subnets::view(&subnet, &network, caller)
            }
            Self::Port => {
                let (port, network) = ports::seen(tx, caller, id(self.member(), text)?)?;
                ports::view(&port, &network, options, caller)
            }
            Self::Group => {
                let group = groups::seen(tx, caller, id(self.member(), text)?)?;
                groups::shown(tx, &group)?
            }
            Self::Rule => rules::view(&rules::seen(tx, caller, id(self.member(), text)?)?),
            Self::Router => {
                let router = routers::seen(tx, caller, id(self.member(), text)?)?;
                routers::shown(tx, &router, caller)?
            }
            Self::FloatingIp => {
                let floating = floating::seen(tx, caller, id(self.member(), text)?)?;
                floating::shown(tx, &floating, caller)?
            }
        })
    }

    /// All resources visible to the caller. The database applies the filters on potentially long lists.
    pub fn list(
        self,
        tx: &mut Tx<'_>,
        request: &RequestContext<'_>,
        filter: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<Body>, Error> {
        let RequestContext { options, caller, .. } = *request;
        match self {
            Self::Network => networks::views(tx, caller),
            Self::Subnet => subnets::views(tx, caller),
            Self::Port => {
                let (device, network) = (filter("device_id"), filter("network_id"));
                ports::views(tx, options, caller, device, network)
            }
            Self::Group => groups::views(tx, caller),
            Self::Rule => rules::views(tx, caller),
            Self::Router => routers::views(tx, caller),
            Self::FloatingIp => floating::views(tx, caller),
        }
    }

    pub fn update(
        self,
        tx: &mut Tx<'_>,
        request: &RequestContext<'_>,
        text: &str,
        sent: &Body,
    ) -> Result<Body, Error> {
        let RequestContext { options, caller, now } = *request;
        Ok(match self {
            Self::Network => {
                let id = id(self.member(), text)?;
                let network = networks::update(tx, options, caller, id, sent, now)?;
                networks::shown(tx, &network, caller)?
            }
            Self::Subnet => {
                let id = id(self.member(), text)?;
                let (subnet, network) = subnets::update(tx, caller, id, sent, now)?;
                subnets::view(&subnet, &network, caller)
            }
            Self::Port => {
                let id = id(self.member(), text)?;
                let (port, network) = ports::update(tx, caller, id, sent, now)?;
                ports::view(&port, &network, options, caller)
            }
            Self::Group => {
                let group = groups::update(tx, caller, id(self.member(), text)?, sent, now)?;
                groups::shown(tx, &group)?
            }
            Self::Rule => {
                let rule = rules::seen(tx, caller, id(self.member(), text)?)?;
                // Upstream has no policy rule for this. Only a caller that may delete the security group rule receives
                // the reason for the refusal.
                let target = targets::rule(&rule);
                target.may(caller, "delete_security_group_rule")?;
                return Err(crate::error::malformed(
                    "A security group rule cannot be changed; delete it and create another.",
                )
                .into());
            }
            Self::Router => {
                let router = routers::update(tx, caller, id(self.member(), text)?, sent, now)?;
                routers::shown(tx, &router, caller)?
            }
            Self::FloatingIp => {
                let id = id(self.member(), text)?;
                let floating = floating::update(tx, caller, id, sent, now)?;
                floating::shown(tx, &floating, caller)?
            }
        })
    }

    pub fn delete(
        self,
        tx: &mut Tx<'_>,
        request: &RequestContext<'_>,
        text: &str,
    ) -> Result<(), Error> {
        let RequestContext { caller, now, .. } = *request;
        match self {
            Self::Network => networks::delete(tx, caller, id(self.member(), text)?),
            Self::Subnet => subnets::delete(tx, caller, id(self.member(), text)?, now),
            Self::Port => ports::delete(tx, caller, id(self.member(), text)?),
            Self::Group => groups::delete(tx, caller, id(self.member(), text)?, now),
            Self::Rule => rules::delete(tx, caller, id(self.member(), text)?, now),
            Self::Router => routers::delete(tx, caller, id(self.member(), text)?),
            Self::FloatingIp => floating::delete(tx, caller, id(self.member(), text)?),
        }
    }

    /// Enforces a rule for one resource that is visible to the caller.
    pub fn may(
        self,
        tx: &mut Tx<'_>,
        request: &RequestContext<'_>,
        text: &str,
        rule: &str,
    ) -> Result<(), Error> {
        let caller = request.caller;
        match self {
            Self::Network => {
                let network = networks::seen(tx, caller, id(self.member(), text)?)?;
                targets::network(&network).may(caller, rule)?;
            }
            Self::Subnet => {
                let (subnet, network) = subnets::seen(tx, caller, id(self.member(), text)?)?;
                targets::subnet(&subnet, &network).may(caller, rule)?;
            }
            Self::Port => {
                let (port, network) = ports::seen(tx, caller, id(self.member(), text)?)?;
                targets::of_port(&port, &network).may(caller, rule)?;
            }
            Self::Group => {
                let group = groups::seen(tx, caller, id(self.member(), text)?)?;
                targets::group(&group).may(caller, rule)?;
            }
            Self::Rule => {
                let found = rules::seen(tx, caller, id(self.member(), text)?)?;
                targets::rule(&found).may(caller, rule)?;
            }
            Self::Router => {
                let router = routers::seen(tx, caller, id(self.member(), text)?)?;
                targets::router(&router).may(caller, rule)?;
            }
            Self::FloatingIp => {
                let floating = floating::seen(tx, caller, id(self.member(), text)?)?;
                targets::floating(&floating).may(caller, rule)?;
            }
        }
        Ok(())
    }

    /// The guards of the kind's routes.
    pub fn guards(self) -> Guards {
        match self {
            Self::Network => Guards {
                create: Guard::Own("create_network"),
                get: Guard::Object(&["get_network"]),
                update: Guard::Object(&["update_network"]),
                delete: Guard::Object(&["delete_network"]),
                tags: Some(Tags {
                    get: "get_network:tags",
                    set: "update_network:tags",
                    drop: "delete_network:tags",
                    guards: [
                        Guard::Object(&["get_network:tags"]),
                        Guard::Object(&["update_network:tags"]),
                        Guard::Object(&["delete_network:tags"]),
                    ],
                }),
            },
            Self::Subnet => Guards {
                create: Guard::Object(&["create_subnet"]),
                get: Guard::Object(&["get_subnet"]),
                update: Guard::Object(&["update_subnet"]),
                delete: Guard::Object(&["delete_subnet"]),
                tags: Some(Tags {
                    get: "get_subnet:tags",
                    set: "update_subnet:tags",
                    drop: "delete_subnet:tags",
                    guards: [
                        Guard::Object(&["get_subnet:tags"]),
                        Guard::Object(&["update_subnet:tags"]),
                        Guard::Object(&["delete_subnet:tags"]),
                    ],
                }),
            },
            Self::Port => Guards {
                create: Guard::Object(&["create_port"]),
                get: Guard::Object(&["get_port"]),
                update: Guard::Object(&["update_port"]),
                delete: Guard::Object(&["delete_port"]),
                tags: Some(Tags {
                    get: "get_port:tags",
                    set: "update_port:tags",
                    drop: "delete_port:tags",
                    guards: [
                        Guard::Object(&["get_port:tags"]),
                        Guard::Object(&["update_port:tags"]),
                        Guard::Object(&["delete_port:tags"]),
                    ],
                }),
            },
            Self::Group => Guards {
                create: Guard::Own("create_security_group"),
                get: Guard::Object(&["get_security_group"]),
                update: Guard::Object(&["update_security_group"]),
                delete: Guard::Object(&["delete_security_group"]),
                tags: Some(Tags {
                    get: "get_security_group:tags",
                    set: "update_security_group:tags",
                    drop: "delete_security_group:tags",
                    guards: [
                        Guard::Object(&["get_security_group:tags"]),
                        Guard::Object(&["update_security_group:tags"]),
                        Guard::Object(&["delete_security_group:tags"]),
                    ],
                }),
            },
            Self::Rule => Guards {
                create: Guard::Object(&["create_security_group_rule"]),
                get: Guard::Object(&["get_security_group_rule"]),
                update: Guard::Object(&["delete_security_group_rule"]),
                delete: Guard::Object(&["delete_security_group_rule"]),
                tags: None,
            },
            Self::Router => Guards {
                create: Guard::Own("create_router"),
                get: Guard::Object(&["get_router"]),
                update: Guard::Object(&["update_router"]),
                delete: Guard::Object(&["delete_router"]),
                tags: Some(Tags {
                    get: "get_router:tags",
                    set: "update_router:tags",
                    drop: "delete_router:tags",
                    guards: [
                        Guard::Object(&["get_router:tags"]),
                        Guard::Object(&["update_router:tags"]),
                        Guard::Object(&["delete_router:tags"]),
                    ],
                }),
            },
            Self::FloatingIp => Guards {
                create: Guard::Own("create_floatingip"),
                get: Guard::Object(&["get_floatingip"]),
                update: Guard::Object(&["update_floatingip"]),
                delete: Guard::Object(&["delete_floatingip"]),
                tags: Some(Tags {
                    get: "get_floatingip:tags",
                    set: "update_floatingip:tags",
                    drop: "delete_floatingip:tags",
                    guards: [
                        Guard::Object(&["get_floatingip:tags"]),
                        Guard::Object(&["update_floatingip:tags"]),
                        Guard::Object(&["delete_floatingip:tags"]),
                    ],
                }),
            },
        }
    }
}
