//! The keys of a server that came with later microversions, or that only admins see. They are borrowed
//! from the server, as lists of a thousand are an everyday request.

use std::borrow::Cow;

use kilonova_wire::Microversion;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::view::Scene;
use crate::db::servers::Server;

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
        let mut add = |from: u32, key: &'static str, value: Shown<'a>| {
            if version >= Microversion(2, from) {
                extra.push((key, value));
            }
        };
        if server.host.is_some()
            && let Some(groups) = scene.nics.groups(server.id)
        {
            add(1, "security_groups", Shown::Json(Cow::Owned(groups.into())));
        }
        add(9, "locked", Shown::Flag(server.lock.is_some()));
        add(19, "description", server.description.as_deref().into());
        add(26, "tags", Shown::Texts(&server.tags));
        add(63, "trusted_image_certificates", None.into());
        if let Some(group) = &scene.group {
            let groups = group.iter().map(|group| Value::from(group.to_string())).collect();
            add(71, "server_groups", Shown::Json(Cow::Owned(Value::Array(groups))));
        }
        let reason = server.lock.as_ref().and_then(|lock| lock.reason.as_deref());
        add(73, "locked_reason", reason.into());
        // Admins have seen it for longer than the others.
        let hostname = if scene.sight.attributes { 3 } else { 90 };
        add(hostname, "OS-EXT-SRV-ATTR:hostname", spec.hostname.as_str().into());
        add(96, "pinned_availability_zone", spec.availability_zone.as_deref().into());
        add(100, "scheduler_hints", Shown::Json(Cow::Borrowed(&spec.hints)));
        let host = server.host.as_deref();
        if scene.sight.attributes {
            add(1, "OS-EXT-SRV-ATTR:host", host.into());
            add(1, "OS-EXT-SRV-ATTR:hypervisor_hostname", host.into());
            let name = Some(Cow::from(server.instance_name()));
            add(1, "OS-EXT-SRV-ATTR:instance_name", Shown::Text(name));
            add(3, "OS-EXT-SRV-ATTR:reservation_id", spec.reservation_id.as_str().into());
            add(3, "OS-EXT-SRV-ATTR:launch_index", Shown::Number(spec.launch_index));
            add(3, "OS-EXT-SRV-ATTR:kernel_id", "".into());
            add(3, "OS-EXT-SRV-ATTR:ramdisk_id", "".into());
            add(3, "OS-EXT-SRV-ATTR:root_device_name", "/dev/vda".into());
            add(3, "OS-EXT-SRV-ATTR:user_data", spec.user_data.as_deref().into());
        }
        let status = host.map_or("", |host| scene.compute.host_status(host));
        if scene.sight.host_status.shows(status) {
            add(16, "host_status", status.into());
        }
        Self(extra)
    }
}
