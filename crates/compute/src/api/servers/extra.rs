//! The keys of a server that came with later microversions, or that only admins see. They are borrowed
//! from the server, as lists of a thousand are an everyday request.

use std::borrow::Cow;

use kilonova_wire::Microversion;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::view::Scene;
use crate::db::servers::Server;
use crate::microversions;

/// Keys and values, in the order in which they are shown.
pub(super) struct Extra<'a>(Vec<(&'static str, Shown<'a>)>);

/// A value.
#[derive(Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    Text(Option<Cow<'a, str>>),
    Texts(&'a [String]),
    Flag(bool),
    Number(i64),
    Json(Cow<'a, Value>),
}

impl<'a> From<&'a str> for Shown<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text.into()))
    }
}

impl<'a> From<Option<&'a str>> for Shown<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text.map(Cow::from))
    }
}

impl Serialize for Extra<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'a> Extra<'a> {
    pub(super) fn of(server: &'a Server, scene: &Scene<'_>) -> Self {
        let (spec, version) = (&server.spec, scene.version);
        let mut extra = Vec::with_capacity(if scene.sight.attributes { 21 } else { 10 });
        let mut add = |from: Microversion, key: &'static str, value: Shown<'a>| {
            if version >= from {
                extra.push((key, value));
            }
        };
        if server.host.is_some()
            && let Some(groups) = scene.nics.groups(server.id)
        {
            add(microversions::MIN, "security_groups", Shown::Json(Cow::Owned(groups.into())));
        }
        add(microversions::SHOW_LOCKED, "locked", Shown::Flag(server.lock.is_some()));
        add(microversions::DESCRIPTION, "description", server.description.as_deref().into());
        add(microversions::TAGS, "tags", Shown::Texts(&server.tags));
        add(microversions::TRUSTED_CERTIFICATES, "trusted_image_certificates", None.into());
        if let Some(group) = &scene.group {
            let groups = group.iter().map(|group| Value::from(group.to_string())).collect();
            add(
                microversions::GROUP_IN_SERVER,
                "server_groups",
                Shown::Json(Cow::Owned(Value::Array(groups))),
            );
        }
        let reason = server.lock.as_ref().and_then(|lock| lock.reason.as_deref());
        add(microversions::LOCK_REASON, "locked_reason", reason.into());
        // Admins have seen it for longer than the others.
        let hostname = if scene.sight.attributes {
            microversions::EXTENDED_ATTRIBUTES
        } else {
            microversions::HOSTNAME
        };
        add(hostname, "OS-EXT-SRV-ATTR:hostname", spec.hostname.as_str().into());
        add(
            microversions::PINNED_ZONE,
            "pinned_availability_zone",
            spec.availability_zone.as_deref().into(),
        );
        add(
            microversions::SCHEDULER_HINTS,
            "scheduler_hints",
            Shown::Json(Cow::Borrowed(&spec.hints)),
        );
        let host = server.host.as_deref();
        if scene.sight.attributes {
            add(microversions::MIN, "OS-EXT-SRV-ATTR:host", host.into());
            add(microversions::MIN, "OS-EXT-SRV-ATTR:hypervisor_hostname", host.into());
            let name = Some(Cow::from(server.instance_name()));
            add(microversions::MIN, "OS-EXT-SRV-ATTR:instance_name", Shown::Text(name));
            add(
                microversions::EXTENDED_ATTRIBUTES,
                "OS-EXT-SRV-ATTR:reservation_id",
                spec.reservation_id.as_str().into(),
            );
            add(
                microversions::EXTENDED_ATTRIBUTES,
                "OS-EXT-SRV-ATTR:launch_index",
                Shown::Number(spec.launch_index),
            );
            add(microversions::EXTENDED_ATTRIBUTES, "OS-EXT-SRV-ATTR:kernel_id", "".into());
            add(microversions::EXTENDED_ATTRIBUTES, "OS-EXT-SRV-ATTR:ramdisk_id", "".into());
            add(
                microversions::EXTENDED_ATTRIBUTES,
                "OS-EXT-SRV-ATTR:root_device_name",
                "/dev/vda".into(),
            );
            add(
                microversions::EXTENDED_ATTRIBUTES,
                "OS-EXT-SRV-ATTR:user_data",
                spec.user_data.as_deref().into(),
            );
        }
        let status = host.map_or("", |host| scene.compute.host_status(host));
        if scene.sight.host_status.shows(status) {
            add(microversions::HOST_STATUS, "host_status", status.into());
        }
        Self(extra)
    }
}
