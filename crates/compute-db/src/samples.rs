//! Samples of how much of each resource class is in use, for plots.
//!
//! A slot of time keeps the first sample that is taken in it, with at most [`MOST`] classes. Longer slots are kept
//! longer, so the table is bounded. Nothing depends on its rows: a slot without a sample is a gap in a plot.

use jiff::Timestamp;
use kilonova_store::{Migration, Tx, Value, params};
use kilonova_wire::time;

use crate::Error;

/// The table of the samples.
pub const SAMPLES: Migration = Migration {
    name: "compute-0800-samples",
    sql: "
CREATE TABLE usage_samples (
    step BIGINT NOT NULL,
    at BIGINT NOT NULL,
    resource_class TEXT NOT NULL,
    used BIGINT NOT NULL,
    capacity BIGINT NOT NULL,
    PRIMARY KEY (step, at, resource_class)
);",
};

/// Maximum number of resource classes in one sample.
pub const MOST: usize = 64;

/// Slots of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Their length in seconds.
    pub seconds: i64,
    /// How long their samples are kept, in seconds.
    pub kept: i64,
}

const HOUR: i64 = 3600;

/// The samples of a day: every five minutes, kept for 25 hours.
pub const OF_DAY: Step = Step { seconds: 300, kept: 25 * HOUR };
/// The samples of a week: every half hour, kept for 8 days.
pub const OF_WEEK: Step = Step { seconds: HOUR / 2, kept: 8 * 24 * HOUR };
/// The samples of a month: every two hours, kept for 35 days.
pub const OF_MONTH: Step = Step { seconds: 2 * HOUR, kept: 35 * 24 * HOUR };

const STEPS: [Step; 3] = [OF_DAY, OF_WEEK, OF_MONTH];

kilonova_store::statements! {
    /// A row if a slot has a sample.
    SAMPLED = "SELECT 1 AS sampled FROM usage_samples WHERE step = ?1 AND at = ?2 LIMIT 1";
    /// Adds a class to the sample of a slot.
    ADD = "INSERT INTO usage_samples (step, at, resource_class, used, capacity)
        VALUES ({}, {}, {}, {}, {}) ON CONFLICT (step, at, resource_class) DO NOTHING";
    /// Deletes old samples of a step.
    FORGET = "DELETE FROM usage_samples WHERE step = ?1 AND at < ?2";
    /// The samples of a step since a time.
    SINCE = "SELECT resource_class, at, used, capacity FROM usage_samples
        WHERE step = ?1 AND at >= ?2 ORDER BY at, resource_class";
}

/// The usage of a resource class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The resource class.
    pub resource_class: String,
    /// The amount in use.
    pub used: i64,
    /// The amount that can be allocated: without the reserved amount, and with overcommit.
    pub capacity: i64,
}

/// The beginning of the slot that contains a time.
fn slot(step: Step, at: Timestamp) -> Timestamp {
    let second = at.as_second();
    Timestamp::from_second(second - second.rem_euclid(step.seconds)).unwrap_or(at)
}

fn before(at: Timestamp, seconds: i64) -> Timestamp {
    time::before(at, jiff::SignedDuration::from_secs(seconds))
}

fn is_sampled(tx: &mut Tx<'_>, step: Step, at: Timestamp) -> Result<bool, Error> {
    Ok(tx.row(SAMPLED, params![step.seconds, slot(step, at)])?.is_some())
}

/// True if the shortest slot that contains `now` has no sample yet.
///
/// # Errors
/// Store errors only; also for the functions below.
pub fn is_due(tx: &mut Tx<'_>, now: Timestamp) -> Result<bool, Error> {
    Ok(!is_sampled(tx, OF_DAY, now)?)
}

/// Adds a sample to each slot of this time that has none, and deletes old samples. Only the first [`MOST`] classes
/// are stored.
pub fn add(tx: &mut Tx<'_>, now: Timestamp, sample: &[Usage]) -> Result<(), Error> {
    for step in STEPS {
        if is_sampled(tx, step, now)? {
            continue;
        }
        let rows = sample.iter().take(MOST).map(|usage| {
            [
                step.seconds.into(),
                slot(step, now).into(),
                Value::from(&*usage.resource_class),
                usage.used.into(),
                usage.capacity.into(),
            ]
        });
        tx.defer_rows(ADD, &rows.collect::<Vec<[Value; 5]>>())?;
        tx.defer(FORGET, params![step.seconds, before(now, step.kept)])?;
    }
    Ok(())
}

/// The samples of the last `seconds` of a step, by the beginning of their slot.
pub fn since(
    tx: &mut Tx<'_>,
    step: Step,
    now: Timestamp,
    seconds: i64,
) -> Result<Vec<(Timestamp, Usage)>, Error> {
    let rows = tx.rows(SINCE, params![step.seconds, before(now, seconds)])?;
    rows.iter()
        .map(|row| {
            let usage = Usage {
                resource_class: row.text("resource_class")?.to_owned(),
                used: row.int("used")?,
                capacity: row.int("capacity")?,
            };
            Ok((row.time("at")?, usage))
        })
        .collect()
}
