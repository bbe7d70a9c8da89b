//! The order in which rows reach the fleet must not matter.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::aggregates::{Aggregate, Grouping};
use kilonova_compute_db::fleet::{About, HostRow, Version};
use kilonova_ids::{HostId, HostName, ProviderId};

use super::Fleet;

fn name() -> HostName {
    HostName::verbatim("a")
}

/// The row of a new host.
fn row(number: i64) -> HostRow {
    HostRow {
        version: Version { number, revision: 0, epoch: 1 },
        host: name(),
        id: HostId::new_v4(),
        root: ProviderId::new_v4(),
        generation: 1,
        enabled: true,
        forced_down: false,
        availability_zone: "nova".into(),
        last_seen: Timestamp::UNIX_EPOCH,
        reported_at: Timestamp::UNIX_EPOCH,
        about: About::default(),
    }
}

/// The row after a change by an operator.
fn changed(row: &HostRow, enabled: bool) -> HostRow {
    let mut row = row.clone();
    row.version.revision += 1;
    row.enabled = enabled;
    row
}

fn grouping(revision: i64, disk: &str) -> Grouping {
    let metadata = BTreeMap::from([("disk".to_owned(), disk.to_owned())]);
    let aggregate = Aggregate {
        id: 1,
        uuid: uuid::Uuid::nil(),
        name: "fast".into(),
        metadata,
        hosts: vec![name()],
        created_at: Timestamp::UNIX_EPOCH,
        updated_at: None,
    };
    Grouping { revision, aggregates: vec![aggregate] }
}

fn is_enabled(fleet: &Fleet) -> Option<bool> {
    fleet.by_name("a").map(|host| host.is_enabled())
}

fn disk(fleet: &Fleet) -> String {
    let metadata = fleet.by_name("a").expect("the host is known").aggregates();
    metadata.values("disk").collect()
}

/// A database that lost its last commits gets the skew again.
#[test]
fn a_skew_is_stored_once_until_its_note_is_forgotten() {
    let fleet = Fleet::default();
    fleet.refresh(&row(1));
    let host = fleet.by_name("a").expect("the host is known");
    let skew = SignedDuration::from_secs(3);
    host.record_clock(Timestamp::UNIX_EPOCH + skew, Timestamp::UNIX_EPOCH);
    assert_eq!(host.unstored_skew(), Some(skew));
    host.set_stored_skew(skew);
    assert_eq!(host.unstored_skew(), None);
    host.clear_stored_skew();
    assert_eq!(host.unstored_skew(), Some(skew));
}

#[test]
fn hooks_in_the_other_order_than_their_commits_leave_the_later_row() {
    let fleet = Fleet::default();
    let first = row(1);
    let disabled = changed(&first, false);
    let enabled = changed(&disabled, true);
    fleet.refresh(&enabled);
    fleet.refresh(&disabled);
    fleet.refresh(&first);
    assert_eq!(is_enabled(&fleet), Some(true));
}

#[test]
fn a_read_that_began_before_a_commit_does_not_undo_it() {
    let fleet = Fleet::default();
    let old = row(1);
    fleet.refresh(&old);
    let known = fleet.known(&name());
    fleet.refresh(&changed(&old, false));
    fleet.apply_read(&name(), &known, Some(&old));
    assert_eq!(is_enabled(&fleet), Some(false));
}

/// A registration at another controller precedes an operator's change here: the epochs grow with the revisions.
#[test]
fn an_older_read_does_not_take_back_an_epoch() {
    let fleet = Fleet::default();
    let old = row(1);
    fleet.refresh(&old);
    let known = fleet.known(&name());
    let mut later = changed(&old, true);
    later.version.epoch = 2;
    fleet.refresh(&later);
    fleet.apply_read(&name(), &known, Some(&old));
    let host = fleet.by_name("a").expect("the host is known");
    assert_eq!(host.epoch(), 2);
    assert_eq!(host.newest().borrow().epoch, 2);
}

#[test]
fn a_database_that_went_back_takes_memory_with_it() {
    let fleet = Fleet::default();
    let old = row(1);
    let mut lost = changed(&old, false);
    (lost.version.epoch, lost.generation) = (2, 9);
    fleet.refresh(&lost);
    let known = fleet.known(&name());
    fleet.apply_read(&name(), &known, Some(&old));
    let host = fleet.by_name("a").expect("the host is known");
    assert!(host.is_enabled());
    let newest = *host.newest().borrow();
    assert_eq!((newest.epoch, newest.generation), (1, 1));
}

/// Controllers of earlier builds do not count their changes.
#[test]
fn a_change_that_was_not_counted_applies() {
    let fleet = Fleet::default();
    let old = row(1);
    fleet.refresh(&old);
    let mut uncounted = old.clone();
    uncounted.enabled = false;
    let known = fleet.known(&name());
    fleet.apply_read(&name(), &known, Some(&uncounted));
    assert_eq!(is_enabled(&fleet), Some(false));
    uncounted.version.epoch = 2;
    uncounted.enabled = true;
    fleet.refresh(&uncounted);
    assert_eq!(is_enabled(&fleet), Some(true));
}

#[test]
fn an_older_row_does_not_bring_a_deleted_host_back() {
    let fleet = Fleet::default();
    let old = row(1);
    fleet.refresh(&old);
    let known = fleet.known(&name());
    fleet.deleted(&name(), 1);
    fleet.apply_read(&name(), &known, Some(&old));
    fleet.refresh(&old);
    assert_eq!(is_enabled(&fleet), None);
    let again = row(2);
    fleet.refresh(&again);
    fleet.deleted(&name(), 1);
    fleet.refresh(&old);
    fleet.apply_read(&name(), &known, Some(&old));
    fleet.apply_read(&name(), &known, None);
    assert_eq!(fleet.by_name("a").map(|host| host.id), Some(again.id));
    assert!(fleet.by_root(old.root).is_none());
    assert!(fleet.by_root(again.root).is_some());
}

#[test]
fn a_deletion_that_was_read_removes_the_host_for_good() {
    let fleet = Fleet::default();
    let old = row(1);
    fleet.refresh(&old);
    let known = fleet.known(&name());
    fleet.refresh(&changed(&old, false));
    fleet.apply_read(&name(), &known, None);
    fleet.refresh(&old);
    assert_eq!(is_enabled(&fleet), None);
    let known = fleet.known(&name());
    fleet.apply_read(&name(), &known, Some(&old));
    assert_eq!(is_enabled(&fleet), Some(true), "the database went back to before the deletion");
}

#[test]
fn a_read_that_began_before_a_registration_does_not_remove_the_host() {
    let fleet = Fleet::default();
    let known = fleet.known(&name());
    let all = fleet.all_known();
    fleet.refresh(&row(1));
    fleet.apply_read(&name(), &known, None);
    fleet.apply_all_read(all, &[]);
    assert_eq!(is_enabled(&fleet), Some(true));
}

#[test]
fn all_rows_at_once_follow_the_same_rules() {
    let fleet = Fleet::default();
    let old = row(1);
    fleet.refresh(&old);
    let before = fleet.all_known();
    fleet.refresh(&changed(&old, false));
    fleet.apply_all_read(before, std::slice::from_ref(&old));
    assert_eq!(is_enabled(&fleet), Some(false));
    let now = fleet.all_known();
    fleet.apply_all_read(now, &[old]);
    assert_eq!(is_enabled(&fleet), Some(true), "the database went back");
    fleet.apply_all_read(fleet.all_known(), &[]);
    assert_eq!(is_enabled(&fleet), None);
}

#[test]
fn aggregates_only_move_forward() {
    let fleet = Fleet::default();
    fleet.refresh(&row(1));
    let known = fleet.grouped();
    fleet.regroup(&grouping(2, "ssd"));
    fleet.regroup(&grouping(1, "old"));
    fleet.apply_grouping_read(known, &grouping(1, "older"));
    assert_eq!(disk(&fleet), "ssd");
    fleet.apply_grouping_read(fleet.grouped(), &grouping(1, "restored"));
    assert_eq!(disk(&fleet), "restored");
    fleet.apply_grouping_read(fleet.grouped(), &grouping(1, "of an earlier build"));
    assert_eq!(disk(&fleet), "of an earlier build");
}

/// A controller may learn of a host after it has learned of the host's aggregates.
#[test]
fn a_host_that_joins_has_its_aggregates_at_once() {
    let fleet = Fleet::default();
    fleet.regroup(&grouping(1, "ssd"));
    fleet.refresh(&row(1));
    assert_eq!(disk(&fleet), "ssd");
}
