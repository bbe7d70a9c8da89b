//! Rows of `consumers` and `allocations`. A consumer is there exactly while it holds something.

use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_store::{Error, Row, Tx, params, statements};

statements! {
    /// One consumer.
    GET = "SELECT generation, consumer_type, project_id, user_id, updated_at
        FROM consumers WHERE id = ?1";
    /// A new consumer. A concurrent one makes PostgreSQL run the transaction again.
    INSERT = "INSERT INTO consumers (id, generation, consumer_type, project_id, user_id, updated_at)
        VALUES (?1, 1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO NOTHING";
    /// One that stands in for another, for the same project and user.
    INSERT_HEIR = "INSERT INTO consumers (id, generation, consumer_type, project_id, user_id, updated_at)
        SELECT CAST(?2 AS TEXT), 1, CAST(?3 AS TEXT), project_id, user_id, CAST(?4 AS BIGINT)
        FROM consumers WHERE id = ?1 ON CONFLICT (id) DO NOTHING";
    /// What one holds becomes another's.
    HAND_OVER = "UPDATE allocations SET consumer_id = ?2 WHERE consumer_id = ?1";
    /// The next write to it.
    UPDATE = "UPDATE consumers SET generation = generation + 1, consumer_type = ?2,
        project_id = ?3, user_id = ?4, updated_at = ?5 WHERE id = ?1";
    /// It holds nothing any more.
    DELETE = "DELETE FROM consumers WHERE id = ?1";
    /// What a consumer holds.
    HELD = "SELECT provider_id, class, used, updated_at FROM allocations WHERE consumer_id = ?1
        ORDER BY provider_id, class";
    /// What a consumer holds, with the providers' names; roots first.
    NAMED = "SELECT a.provider_id, p.name, a.class, a.used FROM allocations a
        JOIN resource_providers p ON p.id = a.provider_id WHERE a.consumer_id = ?1
        ORDER BY CASE WHEN p.id = p.root_id THEN 0 ELSE 1 END, p.name, a.class";
    /// One amount held.
    HOLD = "INSERT INTO allocations (consumer_id, provider_id, class, used, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    /// Four amounts held.
    HOLD_FOUR = "INSERT INTO allocations (consumer_id, provider_id, class, used, updated_at)
        VALUES (?1, ?3, ?4, ?5, ?2), (?1, ?6, ?7, ?8, ?2), (?1, ?9, ?10, ?11, ?2),
        (?1, ?12, ?13, ?14, ?2)";
    /// One amount more, on top of what is held there.
    ADD = "INSERT INTO allocations (consumer_id, provider_id, class, used, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (consumer_id, provider_id, class)
        DO UPDATE SET used = allocations.used + excluded.used, updated_at = excluded.updated_at";
    /// Lets go of one amount.
    DROP = "DELETE FROM allocations WHERE consumer_id = ?1 AND provider_id = ?2 AND class = ?3";
    /// What it holds has changed.
    BUMP = "UPDATE consumers SET generation = generation + 1, updated_at = ?2 WHERE id = ?1";
    /// Lets go of everything.
    LET_GO = "DELETE FROM allocations WHERE consumer_id = ?1";
    /// What is held on a provider, by whom.
    ON_PROVIDER = "SELECT a.consumer_id, a.class, a.used, a.updated_at, c.generation
        FROM allocations a JOIN consumers c ON c.id = a.consumer_id
        WHERE a.provider_id = ?1 ORDER BY a.consumer_id, a.class";
    /// Whether anything is held on a provider.
    ANY_ON_PROVIDER = "SELECT consumer_id FROM allocations WHERE provider_id = ?1 LIMIT 1";
    /// Whether a consumer holds something of a provider.
    HOLDS_ON = "SELECT consumer_id FROM allocations WHERE consumer_id = ?1 AND provider_id = ?2
        LIMIT 1";
    /// Usage of a project or of one user in it, by consumer type and class.
    USAGE = "SELECT c.consumer_type, a.class, CAST(SUM(a.used) AS BIGINT)
        FROM allocations a JOIN consumers c ON c.id = a.consumer_id
        WHERE c.project_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR c.user_id = ?2)
        GROUP BY c.consumer_type, a.class ORDER BY a.class";
    /// Consumers of a project or of one user in it, by type.
    COUNT = "SELECT consumer_type, COUNT(*) FROM consumers
        WHERE project_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR user_id = ?2)
        GROUP BY consumer_type";
}

/// A row of `consumers`.
#[derive(Debug, Clone)]
pub struct ConsumerRow {
    /// Moves on with every write.
    pub generation: i64,
    /// `INSTANCE`, `MIGRATION`; none when never told.
    pub consumer_type: Option<String>,
    /// Who is billed.
    pub project_id: String,
    /// And which user.
    pub user_id: String,
    /// Time of the last write.
    pub updated_at: i64,
}

/// One amount that a consumer holds.
#[derive(Debug, Clone)]
pub struct HeldRow {
    /// On which provider.
    pub provider: ProviderId,
    /// Of which class.
    pub class: String,
    /// How much.
    pub used: i64,
    /// Since when.
    pub updated_at: i64,
}

/// One amount that a consumer holds, with the name of the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// On which provider.
    pub provider: ProviderId,
    /// Its name.
    pub name: String,
    /// Of which class.
    pub class: String,
    /// How much.
    pub amount: i64,
}

/// What a consumer holds, its host's own first.
pub fn named(tx: &mut Tx<'_>, id: ConsumerId) -> Result<Vec<Named>, Error> {
    let read = |row: &Row| {
        Ok(Named {
            provider: row.id(0)?,
            name: row.string(1)?,
            class: row.string(2)?,
            amount: row.int(3)?,
        })
    };
    tx.rows(NAMED, params![id])?.iter().map(read).collect()
}

/// One consumer.
pub fn get(tx: &mut Tx<'_>, id: ConsumerId) -> Result<Option<ConsumerRow>, Error> {
    let read = |row: Row| {
        Ok(ConsumerRow {
            generation: row.int(0)?,
            consumer_type: row.string_opt(1)?,
            project_id: row.string(2)?,
            user_id: row.string(3)?,
            updated_at: row.int(4)?,
        })
    };
    tx.row(GET, params![id])?.map(read).transpose()
}

/// What a consumer holds, by provider and class.
pub fn held(tx: &mut Tx<'_>, id: ConsumerId) -> Result<Vec<HeldRow>, Error> {
    let read = |row: &Row| {
        Ok(HeldRow {
            provider: row.id(0)?,
            class: row.string(1)?,
            used: row.int(2)?,
            updated_at: row.int(3)?,
        })
    };
    tx.rows(HELD, params![id])?.iter().map(read).collect()
}

/// Writes down what a consumer holds now of what it did not hold before.
pub fn hold(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    amounts: &[(ProviderId, &str, i64)],
    now: i64,
) -> Result<(), Error> {
    let (fours, rest) = amounts.as_chunks::<4>();
    for four in fours {
        let mut values = params![id, now].to_vec();
        for (provider, class, amount) in four {
            values.extend(params![*provider, *class, *amount].iter().cloned());
        }
        tx.execute(HOLD_FOUR, &values)?;
    }
    for (provider, class, amount) in rest {
        tx.execute(HOLD, params![id, *provider, *class, *amount, now])?;
    }
    Ok(())
}

/// Whether anything is held on a provider.
pub fn any_on(tx: &mut Tx<'_>, provider: ProviderId) -> Result<bool, Error> {
    Ok(tx.row(ANY_ON_PROVIDER, params![provider])?.is_some())
}

/// Whether a consumer holds something of a provider.
pub fn holds_on(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    provider: ProviderId,
) -> Result<bool, Error> {
    Ok(tx.row(HOLDS_ON, params![consumer, provider])?.is_some())
}

/// One amount held on a provider.
#[derive(Debug, Clone)]
pub struct OnProviderRow {
    /// By whom.
    pub consumer: ConsumerId,
    /// Of which class.
    pub class: String,
    /// How much.
    pub used: i64,
    /// Since when.
    pub updated_at: i64,
    /// The consumer's generation.
    pub generation: i64,
}

/// Who holds what on a provider.
pub fn on_provider(tx: &mut Tx<'_>, id: ProviderId) -> Result<Vec<OnProviderRow>, Error> {
    let read = |row: &Row| {
        Ok(OnProviderRow {
            consumer: row.id(0)?,
            class: row.string(1)?,
            used: row.int(2)?,
            updated_at: row.int(3)?,
            generation: row.int(4)?,
        })
    };
    tx.rows(ON_PROVIDER, params![id])?.iter().map(read).collect()
}

/// Usage of a project (or of one user in it) by consumer type and class.
pub fn usage(
    tx: &mut Tx<'_>,
    project: &str,
    user: Option<&str>,
) -> Result<Vec<(Option<String>, String, i64)>, Error> {
    tx.rows(USAGE, params![project, user])?
        .iter()
        .map(|row| Ok((row.string_opt(0)?, row.string(1)?, row.int(2)?)))
        .collect()
}

/// Consumers of a project (or of one user in it) by type.
pub fn count(
    tx: &mut Tx<'_>,
    project: &str,
    user: Option<&str>,
) -> Result<Vec<(Option<String>, i64)>, Error> {
    tx.rows(COUNT, params![project, user])?
        .iter()
        .map(|row| Ok((row.string_opt(0)?, row.int(1)?)))
        .collect()
}
