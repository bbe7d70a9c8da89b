//! The keys of a server's view that depend on the microversion or the caller. Values are borrowed from the
//! server because lists of a thousand servers are common.

use std::borrow::Cow;

use kilonova_compute_app::microversions;
use kilonova_compute_db::servers::Server;
use kilonova_wire::Microversion;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::view::ViewContext;

/// Keys and values in output order.
pub(super) struct Extra<'a>(Vec<(&'static str, ExtraValue<'a>)>);

/// A value.
#[derive(Serialize)]
#[serde(untagged)]
enum ExtraValue<'a> {
    Text(Option<Cow<'a, str>>),
    Texts(&'a [String]),
    Flag(bool),
    Number(i64),
    Json(Cow<'a, Value>),
}

impl<'a> From<&'a str> for ExtraValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text.into()))
    }
}

impl<'a> From<Option<&'a str>> for ExtraValue<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text.map(Cow::from))
    }
}

impl Serialize for Extra<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// The hints as Nova keeps them: each is a list (`_from_hints` of upstream's `request_spec.py`).
fn hints(sent: &Map<String, Value>) -> Value {
    let list = |value: &Value| match value {
        Value::Array(_) => value.clone(),
        one => json!([one]),
    };
    sent.iter().map(|(hint, value)| (hint.clone(), list(value))).collect()
}

impl<'a> Extra<'a> {
    pub(super) fn of(server: &'a Server, view_context: &ViewContext<'_>) -> Self {
        let (spec, version) = (&server.spec, view_context.version);
        let mut extra =
            Vec::with_capacity(if view_context.visibility.attributes { 21 } else { 10 });
        let mut add = |from: Microversion, key: &'static str, value: ExtraValue<'a>| {
            if version >= from {
                extra.push((key, value));
            }
        };
        if let Some(groups) = view_context.ports.groups(server.id) {
            let groups: Vec<Value> = groups.into_iter().map(|name| json!({"name": name})).collect();
            add(microversions::MIN, "security_groups", ExtraValue::Json(Cow::Owned(groups.into())));
        }
        add(microversions::SHOW_LOCKED, "locked", ExtraValue::Flag(server.lock.is_some()));
        add(microversions::DESCRIPTION, "description", server.description.as_deref().into());
        add(microversions::TAGS, "tags", ExtraValue::Texts(&server.tags));
        add(microversions::TRUSTED_CERTIFICATES, "trusted_image_certificates", None.into());
        if let Some(group) = &view_context.group {
            let groups = group.iter().map(|group| Value::from(group.to_string())).collect();
            add(
                microversions::GROUP_IN_SERVER,
                "server_groups",
                ExtraValue::Json(Cow::Owned(Value::Array(groups))),
            );
        }
        let reason = server.lock.as_ref().and_then(|lock| lock.reason.as_deref());
        add(microversions::LOCK_REASON, "locked_reason", reason.into());
        // Administrators see the host name from an earlier microversion on.
        let hostname = if view_context.visibility.attributes {
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
            ExtraValue::Json(Cow::Owned(hints(spec.hints.as_sent()))),
        );
        let host = server.host.as_deref();
        if view_context.visibility.attributes {
            add(microversions::MIN, "OS-EXT-SRV-ATTR:host", host.into());
            add(microversions::MIN, "OS-EXT-SRV-ATTR:hypervisor_hostname", host.into());
            let name = Some(Cow::from(server.instance_name()));
            add(microversions::MIN, "OS-EXT-SRV-ATTR:instance_name", ExtraValue::Text(name));
            add(
                microversions::EXTENDED_ATTRIBUTES,
                "OS-EXT-SRV-ATTR:reservation_id",
                spec.reservation_id.as_str().into(),
            );
            add(
                microversions::EXTENDED_ATTRIBUTES,
                "OS-EXT-SRV-ATTR:launch_index",
                ExtraValue::Number(spec.launch_index),
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
        let status = server.host.as_ref().map_or("", |host| view_context.compute.host_status(host));
        if view_context.visibility.host_status.shows(status) {
            add(microversions::HOST_STATUS, "host_status", status.into());
        }
        Self(extra)
    }
}
