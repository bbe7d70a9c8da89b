//! The filters of a list of migrations.

use jiff::Timestamp;
use kilonova_compute_app::microversions;
use kilonova_compute_db::moves::Move;
use kilonova_ids::HostName;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal, time};

use crate::api::input;

/// The filters of one request.
#[derive(Clone, Default)]
pub(super) struct MigrationFilter {
    status: Option<String>,
    host: Option<HostName>,
    source: Option<HostName>,
    server: Option<String>,
    kind: Option<String>,
    user: Option<String>,
    project: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl MigrationFilter {
    pub fn read(query: &Query, version: Microversion) -> Result<Self, Refusal> {
        let at = |first: Microversion| version >= first;
        let mut known =
            vec!["hidden", "host", "instance_uuid", "source_compute", "status", "migration_type"];
        if at(microversions::MIGRATION_PAGES) {
            known.extend(["limit", "marker", "changes-since"]);
        }
        if at(microversions::CHANGES_BEFORE) {
            known.push("changes-before");
        }
        // Before 2.59 Nova accepts every key as a filter, so these two also apply there.
        if at(microversions::MIGRATION_OWNERS) || !at(microversions::MIGRATION_PAGES) {
            known.extend(["user_id", "project_id"]);
        }
        if at(microversions::MIGRATION_PAGES) {
            input::check_query_keys(query, &known)?;
        }
        let text = |key: &str| query.get(key).filter(|_| known.contains(&key)).map(str::to_owned);
        let moment = |key: &str| match text(key) {
            None => Ok(None),
            Some(value) => match time::parse(&value) {
                Some(moment) => Ok(Some(moment)),
                None => Err(input::invalid_query(key, &value, "It is not a time.")),
            },
        };
        let (since, until) = (moment("changes-since")?, moment("changes-before")?);
        let until = until.map(time::end_of_second);
        if let (Some(since), Some(until)) = (since, until)
            && since > until
        {
            return Err(Refusal::bad_request(
                "The value of changes-since must be less than or equal to changes-before.",
            ));
        }
        Ok(Self {
            status: text("status"),
            host: text("host").map(HostName::verbatim),
            source: text("source_compute").map(HostName::verbatim),
            server: text("instance_uuid"),
            kind: text("migration_type"),
            user: text("user_id"),
            project: text("project_id"),
            since,
            until,
        })
    }

    pub fn matches(&self, one: &Move) -> bool {
        let is = |filter: &Option<String>, actual: &str| {
            filter.as_deref().is_none_or(|value| value == actual)
        };
        let on = |host: &HostName| one.source == *host || one.dest.as_ref() == Some(host);
        is(&self.status, one.status.as_str())
            && self.source.as_ref().is_none_or(|source| *source == one.source)
            && is(&self.kind, one.kind.as_str())
            && is(&self.server, &one.server.to_string())
            && is(&self.user, &one.user_id)
            && is(&self.project, &one.project_id)
            && self.host.as_ref().is_none_or(on)
            && self.since.is_none_or(|since| one.updated_at >= since)
            && self.until.is_none_or(|until| one.updated_at <= until)
    }
}
