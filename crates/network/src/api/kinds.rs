//! The kinds of things that there are here, and for each what to call: HTTP's verbs on the left,
//! `app` on the right.

use kilonova_store::Tx;
use kilonova_wire::Context;

use super::listing::Collection;
use crate::app::{groups, id, networks, ports, rules, subnets};
use crate::attributes::Attribute;
use crate::record::Body;
use crate::{Error, Options};

/// A kind of thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Network,
    Subnet,
    Port,
    Group,
    Rule,
}

/// Who asks, under which options, when.
pub(super) struct Ask<'a> {
    pub options: &'a Options,
    pub context: &'a Context,
    pub now: i64,
}

impl Kind {
    /// By the last part of a path.
    pub fn of(path: &str) -> Option<Self> {
        Some(match path {
            "networks" => Self::Network,
            "subnets" => Self::Subnet,
            "ports" => Self::Port,
            "security-groups" => Self::Group,
            "security-group-rules" => Self::Rule,
            _ => return None,
        })
    }

    /// The key of one in a body, which is also the name in rules.
    pub fn member(self) -> &'static str {
        match self {
            Self::Network => networks::KIND,
            Self::Subnet => subnets::KIND,
            Self::Port => ports::KIND,
            Self::Group => groups::KIND,
            Self::Rule => rules::KIND,
        }
    }

    pub fn collection(self) -> Collection {
        let (path, key) = match self {
            Self::Network => ("networks", "networks"),
            Self::Subnet => ("subnets", "subnets"),
            Self::Port => ("ports", "ports"),
            Self::Group => ("security-groups", "security_groups"),
            Self::Rule => ("security-group-rules", "security_group_rules"),
        };
        Collection { path, key }
    }

    fn attributes(self) -> &'static [Attribute] {
        match self {
            Self::Network => networks::ATTRIBUTES,
            Self::Subnet => subnets::ATTRIBUTES,
            Self::Port => ports::ATTRIBUTES,
            Self::Group => groups::ATTRIBUTES,
            Self::Rule => rules::ATTRIBUTES,
        }
    }

    /// What lists of the kind are filtered and sorted by.
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
            Self::Subnet | Self::Rule => &[][..],
            Self::Port => &["status", "ip_allocation", "binding:vif_type", "ip_address"][..],
            Self::Group => &["shared", "security_group_rules"][..],
        });
        known
    }

    pub fn create(self, tx: &mut Tx<'_>, ask: &Ask<'_>, sent: &Body) -> Result<Body, Error> {
        let Ask { options, context, now } = *ask;
        Ok(match self {
            Self::Network => {
                let made = networks::create(tx, options, context, sent, now)?;
                networks::shown(tx, &made, context)?
            }
            Self::Subnet => subnets::view(&subnets::create(tx, context, sent, now)?),
            Self::Port => ports::view(&ports::create(tx, context, sent, now)?, options, context),
            Self::Group => {
                let made = groups::create(tx, context, sent, now)?;
                groups::shown(tx, &made)?
            }
            Self::Rule => rules::view(&rules::create(tx, context, sent, now)?),
        })
    }

    pub fn show(self, tx: &mut Tx<'_>, ask: &Ask<'_>, text: &str) -> Result<Body, Error> {
        let Ask { options, context, .. } = *ask;
        Ok(match self {
            Self::Network => {
                let network = networks::seen(tx, context, id(self.member(), text)?)?;
                networks::shown(tx, &network, context)?
            }
            Self::Subnet => subnets::view(&subnets::seen(tx, context, id(self.member(), text)?)?),
            Self::Port => {
                ports::view(&ports::seen(tx, context, id(self.member(), text)?)?, options, context)
            }
            Self::Group => {
                let group = groups::seen(tx, context, id(self.member(), text)?)?;
                groups::shown(tx, &group)?
            }
            Self::Rule => rules::view(&rules::seen(tx, context, id(self.member(), text)?)?),
        })
    }

    /// All that the caller sees; a filter on what there may be much of is the database's work.
    pub fn list(
        self,
        tx: &mut Tx<'_>,
        ask: &Ask<'_>,
        filter: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<Body>, Error> {
        let Ask { options, context, .. } = *ask;
        match self {
            Self::Network => networks::views(tx, context),
            Self::Subnet => subnets::views(tx, context),
            Self::Port => {
                let (device, network) = (filter("device_id"), filter("network_id"));
                ports::views(tx, options, context, device, network)
            }
            Self::Group => groups::views(tx, context),
            Self::Rule => rules::views(tx, context),
        }
    }

    pub fn update(
        self,
        tx: &mut Tx<'_>,
        ask: &Ask<'_>,
        text: &str,
        sent: &Body,
    ) -> Result<Body, Error> {
        let Ask { options, context, now } = *ask;
        Ok(match self {
            Self::Network => {
                let id = id(self.member(), text)?;
                let network = networks::update(tx, context, id, sent, now)?;
                networks::shown(tx, &network, context)?
            }
            Self::Subnet => {
                let id = id(self.member(), text)?;
                subnets::view(&subnets::update(tx, context, id, sent, now)?)
            }
            Self::Port => {
                let id = id(self.member(), text)?;
                ports::view(&ports::update(tx, context, id, sent, now)?, options, context)
            }
            Self::Group => {
                let group = groups::update(tx, context, id(self.member(), text)?, sent, now)?;
                groups::shown(tx, &group)?
            }
            Self::Rule => {
                rules::seen(tx, context, id(self.member(), text)?)?;
                return Err(crate::error::malformed(
                    "A rule cannot be changed; delete it and make another.",
                )
                .into());
            }
        })
    }

    pub fn delete(self, tx: &mut Tx<'_>, ask: &Ask<'_>, text: &str) -> Result<(), Error> {
        let context = ask.context;
        match self {
            Self::Network => networks::delete(tx, context, id(self.member(), text)?),
            Self::Subnet => subnets::delete(tx, context, id(self.member(), text)?),
            Self::Port => ports::delete(tx, context, id(self.member(), text)?),
            Self::Group => groups::delete(tx, context, id(self.member(), text)?),
            Self::Rule => rules::delete(tx, context, id(self.member(), text)?),
        }
    }

    /// Whether things of the kind have tags.
    pub fn has_tags(self) -> bool {
        self.attributes().iter().any(|attribute| attribute.name == "tags")
    }
}
