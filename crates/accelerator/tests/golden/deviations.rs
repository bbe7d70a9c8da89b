//! Intended deviations from Cyborg.

use super::record::{Answer, Exchange};

/// One or several exchanges that deviate in the same way for the same reason.
#[derive(Debug)]
pub struct Deviation {
    /// The note in the record, with `*` as wildcard; or `#` and the line.
    pub note: &'static str,
    /// The path, with `*` as wildcard.
    pub path: &'static str,
    /// Our status.
    pub status: u16,
    /// A part of our body.
    pub text: &'static str,
    /// Words from the line of docs/compatibility.md that gives the reason.
    pub reason: &'static str,
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        Some((begin, end)) => {
            text.len() >= begin.len() + end.len() && text.starts_with(begin) && text.ends_with(end)
        }
        None => text == pattern,
    }
}

impl Deviation {
    pub fn covers(&self, exchange: &Exchange) -> bool {
        let noted = match self.note.strip_prefix('#') {
            Some(line) => line == exchange.line.to_string(),
            None => matches(self.note, &exchange.note),
        };
        noted && matches(self.path, &exchange.path)
    }

    /// The difference between the answer and this entry.
    pub fn check(
        &self,
        exchange: &Exchange,
        answer: &Answer,
        found: &Option<String>,
    ) -> Option<String> {
        if found.is_none() {
            return Some(format!("{exchange}: no longer deviates ({})", self.reason));
        }
        let body = answer.body.to_string();
        if answer.status != self.status || !body.contains(self.text) {
            let status = answer.status;
            return Some(format!("{exchange}: {status} {body}, not {} {}", self.status, self.text));
        }
        None
    }
}

const fn row(
    note: &'static str,
    path: &'static str,
    status: u16,
    text: &'static str,
    reason: &'static str,
) -> Deviation {
    Deviation { note, path, status, text, reason }
}

const ROLES: &str = "old and new policy defaults, by option";
const CLIENT: &str = "client errors that end as 500";
const UNKNOWN: &str = "unknown fields in bodies and unknown query parameters: ignored";
const NEEDED: &str =
    "a device profile without name or groups, or with a name longer than 255 characters";
const POISON: &str = "a device profile with an invalid UUID is stored";
const NEVER: &str = "a device profile without resources, with amounts of 0 or less";
const ODD: &str = "device profile names with a trailing newline, numbers as descriptions";
const HALF: &str = "a failed bind leaves its accelerator requests in `BindStarted` or `BindFailed`";
const EITHER: &str = "neither or both of `arqs` and `instance` in a delete";
const ABSENT: &str = "`DELETE ?arqs=` with an unknown UUID deletes nothing";
const FILTERS: &str = "`filters.*` of the device list: ignored";
const ALL_NAMES: &str = "deleting a list of profiles stops at the first unknown name";
const PROFILES: &str = "/v2/device_profiles";
const ARQS: &str = "/v2/accelerator_requests";

pub const TABLE: &[Deviation] = &[
    row("role=''", "*", 403, "Access was denied", ROLES),
    row("role='' create arq", ARQS, 403, "cyborg:arq:create", ROLES),
    row("role='reader'", "/v2/devices", 403, "cyborg:device:get_all", ROLES),
    row("role='reader'", "/v2/deployables", 403, "cyborg:deployable:get_all", ROLES),
    row("role='reader'", "/v2/attributes", 403, "cyborg:attribute:get_all", ROLES),
    row("role='reader' create arq", ARQS, 403, "cyborg:arq:create", ROLES),
    row("role='member'", "/v2/devices", 403, "cyborg:device:get_all", ROLES),
    row("role='member'", "/v2/deployables", 403, "cyborg:deployable:get_all", ROLES),
    row("role='member'", "/v2/attributes", 403, "cyborg:attribute:get_all", ROLES),
    row("role='service'", "*", 403, "Access was denied", ROLES),
    row(
        "no identity headers at all",
        "/v2/devices",
        401,
        "Authentication required",
        "without `authtoken` in its pipeline, anonymous requests are answered",
    ),
    row("filter", "/v2/devices?filters=*", 400, r#"Unknown argument: \\\"filters\\\""#, FILTERS),
    row("filter", "/v2/devices?filters.field=*", 400, "Unknown argument", FILTERS),
    row("GET disable", "*", 405, "GET is not allowed", "`GET` of a device's `enable` and"),
    row("program", "*", 409, "takes no bitstreams", "programming works with any driver"),
    row("program empty", "*", 400, "The list of steps is empty", CLIENT),
    row("create missing key", "/v2/attributes", 400, "key must be a printable", CLIENT),
    row("create unknown field", "/v2/attributes", 400, "Unknown attribute", UNKNOWN),
    row("create bad deployable", "/v2/attributes", 404, "Deployable not found with id", CLIENT),
    row("#130", "/v2/attributes", 200, "attributes", UNKNOWN),
    row("dup uuid", PROFILES, 409, "already exists.", "duplicate device profile UUID: 500"),
    row("list after bad uuid", PROFILES, 200, "device_profiles", POISON),
    row("remove the poison row", "*", 404, "Device Profile not found with name=dpbad", POISON),
    row("list again", PROFILES, 200, "device_profiles", POISON),
    row("dp no name", PROFILES, 400, "DeviceProfile name needed.", NEEDED),
    row("dp empty name", PROFILES, 400, "DeviceProfile name needed.", NEEDED),
    row("dp name newline", PROFILES, 400, "must be of the form", ODD),
    row("dp 256 chars", PROFILES, 400, "longer than 255 characters", NEEDED),
    row("dp int name", PROFILES, 400, "name must be a string", CLIENT),
    row("dp no groups", PROFILES, 400, "DeviceProfile needs groups field.", NEEDED),
    row("dp empty groups", PROFILES, 400, "DeviceProfile needs groups field.", NEEDED),
    row("dp rc value 0", PROFILES, 400, "Resources number 0 is invalid", NEVER),
    row("dp rc value -1", PROFILES, 400, "Resources number -1 is invalid", NEVER),
    row("dp rc value null", PROFILES, 400, "Resources number null is invalid", CLIENT),
    row("dp trait lower", PROFILES, 400, "hold only A-Z, 0-9 and _", NEVER),
    row("dp no resources", PROFILES, 400, "asks for no resources", NEVER),
    row("dp unknown field", PROFILES, 400, "Unknown attribute", UNKNOWN),
    row("dp group not dict", PROFILES, 400, "must be an object", CLIENT),
    row("dp int description", PROFILES, 400, "description must be a string", ODD),
    row("PUT dp", "*", 405, "PUT is not allowed", "`Allow` names the methods of the collection"),
    row(
        "PATCH dp",
        "*",
        405,
        "PATCH is not allowed",
        "`Allow` names the methods of the collection",
    ),
    row("okint gone?", "*", 200, "okint", ALL_NAMES),
    row("okzero gone?", "*", 404, "Device Profile not found with name=okzero", NEVER),
    row("create no name", ARQS, 400, "DeviceProfile name needed.", CLIENT),
    row("create null", ARQS, 400, "DeviceProfile name needed.", CLIENT),
    row("list body", ARQS, 400, "The body must be an object", CLIENT),
    row("from dp without resources", ARQS, 404, "with name=okempty", NEVER),
    row("from dp with -1", ARQS, 404, "with name=okneg", NEVER),
    row("bind empty map", ARQS, 400, "No accelerator request is named", CLIENT),
    row("bind empty patch", ARQS, 400, "An accelerator request without steps", CLIENT),
    row("state after failed bind", "*", 200, "Initial", HALF),
    row("list bad bind_state", "*", 400, "['resolved']", "`bind_state` other than `resolved`"),
    row("list unresolved instance", "*", 200, r#"{"arqs":[]}"#, HALF),
    row("delete dp in use", "*", 409, "is in use by", "deleting a profile in use: 500"),
    row("arq3 left?", "*", 404, "ExtArq not found", ABSENT),
    row("#260", "*", 404, "ExtArq not found", ABSENT),
    row("delete both params", "*", 400, "Provide either an ARQ uuid list or an", EITHER),
    row("delete no params", ARQS, 400, "Provide either an ARQ uuid list or an", EITHER),
    row("DELETE /uuid form", "*", 204, "null", HALF),
    row("delete stuck BindStarted arq (no token)", "*", 404, "ExtArq not found", HALF),
    row("delete stuck BindStarted arq (token)", "*", 404, "ExtArq not found", HALF),
    row(
        "bind 17 on 16 handles",
        ARQS,
        404,
        "AttachHandle not found: resource provider",
        "if no device is free, the error contains a row number",
    ),
    row("states", "*", 200, r#"{"arqs":[]}"#, HALF),
    row("left", ARQS, 200, "arqs", HALF),
    row("left", PROFILES, 200, "device_profiles", POISON),
];
