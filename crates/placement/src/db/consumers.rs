//! Rows of `consumers` and `allocations`. A consumer exists exactly while it has allocations.

use jiff::Timestamp;
use kilonova_ids::{ConsumerId, ProviderId, ResourceClass};
use kilonova_store::{Asked, Error, Row, Tx, Value, params, statements};

statements! {
    /// One consumer.
    GET = "SELECT generation, consumer_type, project_id, user_id, updated_at
        FROM consumers WHERE id = ?1";
    /// Inserts a consumer. On PostgreSQL a concurrent insert makes the transaction run again.
    INSERT = "INSERT INTO consumers (id, generation, consumer_type, project_id, user_id, updated_at)
        VALUES (?1, 1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO NOTHING RETURNING id";
    /// Inserts a consumer with the project and user of another consumer.
    INSERT_SUCCESSOR = "INSERT INTO consumers
        (id, generation, consumer_type, project_id, user_id, updated_at)
        SELECT CAST(?2 AS TEXT), 1, CAST(?3 AS TEXT), project_id, user_id, CAST(?4 AS BIGINT)
        FROM consumers WHERE id = ?1 ON CONFLICT (id) DO NOTHING";
    /// Moves all allocations to another consumer.
    MOVE_ALLOCATIONS = "UPDATE allocations SET consumer_id = ?2 WHERE consumer_id = ?1";
    /// Updates a consumer and increments its generation.
    UPDATE = "UPDATE consumers SET generation = generation + 1, consumer_type = ?2,
        project_id = ?3, user_id = ?4, updated_at = ?5 WHERE id = ?1";
    /// Deletes a consumer, which must have no allocations.
    DELETE = "DELETE FROM consumers WHERE id = ?1";
    /// A consumer's allocations.
    ALLOCATIONS = "SELECT provider_id, class, used, updated_at FROM allocations WHERE consumer_id = ?1
        ORDER BY provider_id, class";
    /// A consumer's allocations with the roots of their trees.
    HELD = "SELECT a.provider_id, a.class, a.used, p.root_id FROM allocations a
        JOIN resource_providers p ON p.id = a.provider_id WHERE a.consumer_id = ?1
        ORDER BY a.provider_id, a.class";
    /// A consumer's allocations with the providers' names; roots first.
    ALLOCATIONS_NAMED = "SELECT a.provider_id, p.name, a.class, a.used FROM allocations a
        JOIN resource_providers p ON p.id = a.provider_id WHERE a.consumer_id = ?1
        ORDER BY CASE WHEN p.id = p.root_id THEN 0 ELSE 1 END, p.name, a.class";
    /// Inserts one allocation.
    INSERT_ALLOCATION = "INSERT INTO allocations (consumer_id, provider_id, class, used, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    /// Inserts two allocations.
    INSERT_TWO_ALLOCATIONS = "INSERT INTO allocations (consumer_id, provider_id, class, used, updated_at)
        VALUES (?1, ?3, ?4, ?5, ?2), (?1, ?6, ?7, ?8, ?2)";
    /// Inserts three allocations.
    INSERT_THREE_ALLOCATIONS = "INSERT INTO allocations (consumer_id, provider_id, class, used, updated_at)
        VALUES (?1, ?3, ?4, ?5, ?2), (?1, ?6, ?7, ?8, ?2), (?1, ?9, ?10, ?11, ?2)";
    /// Inserts four allocations.
    INSERT_FOUR_ALLOCATIONS = "INSERT INTO allocations (consumer_id, provider_id, class, used, updated_at)
        VALUES (?1, ?3, ?4, ?5, ?2), (?1, ?6, ?7, ?8, ?2), (?1, ?9, ?10, ?11, ?2),
        (?1, ?12, ?13, ?14, ?2)";
    /// Inserts one allocation, or adds to the existing one.
    ADD_ALLOCATION = "INSERT INTO allocations (consumer_id, provider_id, class, used, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (consumer_id, provider_id, class)
        DO UPDATE SET used = allocations.used + excluded.used, updated_at = excluded.updated_at";
    /// Deletes one allocation.
    DELETE_ALLOCATION = "DELETE FROM allocations
        WHERE consumer_id = ?1 AND provider_id = ?2 AND class = ?3";
    /// Reduces one allocation.
    REDUCE_ALLOCATION = "UPDATE allocations SET used = used - ?4, updated_at = ?5
        WHERE consumer_id = ?1 AND provider_id = ?2 AND class = ?3";
    /// Increments the generation after a change to the allocations.
    BUMP = "UPDATE consumers SET generation = generation + 1, updated_at = ?2 WHERE id = ?1";
    /// Deletes all allocations of a consumer.
    DELETE_ALLOCATIONS = "DELETE FROM allocations WHERE consumer_id = ?1";
    /// The allocations on a provider, with their consumers.
    ON_PROVIDER = "SELECT a.consumer_id, a.class, a.used, a.updated_at, c.generation
        FROM allocations a JOIN consumers c ON c.id = a.consumer_id
        WHERE a.provider_id = ?1 ORDER BY a.consumer_id, a.class";
    /// A consumer with an allocation on a provider.
    ANY_ON_PROVIDER = "SELECT consumer_id FROM allocations WHERE provider_id = ?1 LIMIT 1";
    /// One allocation of a consumer on a provider.
    HAS_ALLOCATION_ON = "SELECT consumer_id FROM allocations
        WHERE consumer_id = ?1 AND provider_id = ?2 LIMIT 1";
    /// The consumers of some providers.
    USERS_OF = "SELECT DISTINCT consumer_id FROM allocations WHERE provider_id IN ({})";
    /// Usage of a project or of one user in it, by consumer type and class.
    USAGE = "SELECT c.consumer_type, a.class, CAST(SUM(a.used) AS BIGINT) AS used
        FROM allocations a JOIN consumers c ON c.id = a.consumer_id
        WHERE c.project_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR c.user_id = ?2)
        GROUP BY c.consumer_type, a.class ORDER BY a.class";
    /// Consumers of a project or of one user in it, by type.
    COUNT = "SELECT consumer_type, COUNT(*) AS count FROM consumers
        WHERE project_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR user_id = ?2)
        GROUP BY consumer_type";
}

/// A row of `consumers`.
#[derive(Debug, Clone)]
pub struct ConsumerRow {
    /// Incremented by every write.
    pub generation: i64,
    /// The type, such as `INSTANCE` or `MIGRATION`; `None` if it was never set.
    pub consumer_type: Option<String>,
    /// The project.
    pub project_id: String,
    /// The user.
    pub user_id: String,
    /// Time of the last write.
    pub updated_at: Timestamp,
}

/// One allocation of a consumer.
#[derive(Debug, Clone)]
pub struct AllocationRow {
    /// The provider.
    pub provider: ProviderId,
    /// The class.
    pub class: ResourceClass,
    /// The amount.
    pub used: i64,
    /// Time of the last write.
    pub updated_at: Timestamp,
}

/// One allocation of a consumer, with the provider's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAllocation {
    /// The provider.
    pub provider: ProviderId,
    /// The provider's name.
    pub name: String,
    /// The class.
    pub class: ResourceClass,
    /// The amount.
    pub amount: i64,
}

/// A consumer's allocations; those on root providers come first.
pub fn allocations_of(tx: &mut Tx<'_>, id: ConsumerId) -> Result<Vec<NamedAllocation>, Error> {
    let read = |row: &Row| {
        Ok(NamedAllocation {
            provider: row.id("provider_id")?,
            name: row.string("name")?,
            class: row.class("class")?,
            amount: row.int("used")?,
        })
    };
    tx.rows(ALLOCATIONS_NAMED, params![id])?.iter().map(read).collect()
}

/// One consumer.
pub fn get(tx: &mut Tx<'_>, id: ConsumerId) -> Result<Option<ConsumerRow>, Error> {
    let read = |row: Row| {
        Ok(ConsumerRow {
            generation: row.int("generation")?,
            consumer_type: row.string_opt("consumer_type")?,
            project_id: row.string("project_id")?,
            user_id: row.string("user_id")?,
            updated_at: row.time("updated_at")?,
        })
    };
    tx.row(GET, params![id])?.map(read).transpose()
}

/// A consumer's allocations, by provider and class.
pub fn allocations(tx: &mut Tx<'_>, id: ConsumerId) -> Result<Vec<AllocationRow>, Error> {
    let read = |row: &Row| {
        Ok(AllocationRow {
            provider: row.id("provider_id")?,
            class: row.class("class")?,
            used: row.int("used")?,
            updated_at: row.time("updated_at")?,
        })
    };
    tx.rows(ALLOCATIONS, params![id])?.iter().map(read).collect()
}

/// One allocation of a consumer, in the form that a release needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldAllocation {
    /// The provider.
    pub provider: ProviderId,
    /// The root of its tree.
    pub root: ProviderId,
    /// The class.
    pub class: ResourceClass,
    /// The amount.
    pub used: i64,
}

/// Announces [`held`].
pub fn expect_held(tx: &mut Tx<'_>, id: ConsumerId) -> Result<(), Error> {
    tx.expect(HELD, params![id])
}

/// A consumer's allocations with their trees, by provider and class.
pub fn held(tx: &mut Tx<'_>, id: ConsumerId) -> Result<Vec<HeldAllocation>, Error> {
    let read = |row: &Row| {
        Ok(HeldAllocation {
            provider: row.id("provider_id")?,
            root: row.id("root_id")?,
            class: row.class("class")?,
            used: row.int("used")?,
        })
    };
    tx.rows(HELD, params![id])?.iter().map(read).collect()
}

/// The columns of a consumer that its writer sets.
#[derive(Debug, Clone, Copy)]
pub struct ConsumerOwner<'a> {
    /// The type, such as `INSTANCE` or `MIGRATION`.
    pub consumer_type: Option<&'a str>,
    /// The project.
    pub project_id: &'a str,
    /// The user.
    pub user_id: &'a str,
}

impl ConsumerOwner<'_> {
    fn values(&self, id: ConsumerId, now: Timestamp) -> [Value; 5] {
        let Self { consumer_type, project_id, user_id } = *self;
        [id.into(), consumer_type.into(), project_id.into(), user_id.into(), now.into()]
    }
}

/// Inserts a consumer; returns false if it exists.
pub fn insert(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    owner: ConsumerOwner<'_>,
    now: Timestamp,
) -> Result<bool, Error> {
    let asked = ask_insert(tx, id, owner, now)?;
    inserted(tx, asked)
}

/// Asks for [`insert`].
pub fn ask_insert(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    owner: ConsumerOwner<'_>,
    now: Timestamp,
) -> Result<Asked, Error> {
    tx.ask(INSERT, &owner.values(id, now))
}

/// True if the consumer was inserted.
pub fn inserted(tx: &mut Tx<'_>, asked: Asked) -> Result<bool, Error> {
    Ok(tx.answer_row(asked)?.is_some())
}

/// Inserts a consumer with the project and user of another; returns false if it exists.
pub fn insert_successor(
    tx: &mut Tx<'_>,
    predecessor: ConsumerId,
    id: ConsumerId,
    consumer_type: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    Ok(tx.execute(INSERT_SUCCESSOR, params![predecessor, id, consumer_type, now])? > 0)
}

/// Updates a consumer and increments its generation.
pub fn update(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    owner: ConsumerOwner<'_>,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(UPDATE, &owner.values(id, now))
}

/// Increments a consumer's generation after a change to its allocations.
pub fn bump(tx: &mut Tx<'_>, id: ConsumerId, now: Timestamp) -> Result<(), Error> {
    tx.defer(BUMP, params![id, now])
}

/// Deletes a consumer, which must have no allocations.
pub fn delete(tx: &mut Tx<'_>, id: ConsumerId) -> Result<(), Error> {
    tx.defer(DELETE, params![id])
}

/// Deletes all allocations of a consumer. The providers' usage stays unchanged.
pub fn delete_allocations(tx: &mut Tx<'_>, id: ConsumerId) -> Result<(), Error> {
    tx.defer(DELETE_ALLOCATIONS, params![id])
}

/// Moves all allocations from one consumer to another.
pub fn move_allocations(tx: &mut Tx<'_>, from: ConsumerId, to: ConsumerId) -> Result<(), Error> {
    tx.defer(MOVE_ALLOCATIONS, params![from, to])
}

/// Deletes one allocation. The provider's usage stays unchanged.
pub fn delete_allocation(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    provider: ProviderId,
    class: &ResourceClass,
) -> Result<(), Error> {
    tx.defer(DELETE_ALLOCATION, params![id, provider, class])
}

/// Reduces one allocation, which must be larger than `amount`. The provider's usage stays unchanged.
pub fn reduce_allocation(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    provider: ProviderId,
    class: &ResourceClass,
    amount: i64,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(REDUCE_ALLOCATION, params![id, provider, class, amount, now])
}

/// Inserts one allocation, or adds to the existing one. The provider's usage stays unchanged.
pub fn add_allocation(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    provider: ProviderId,
    class: &ResourceClass,
    amount: i64,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(ADD_ALLOCATION, params![id, provider, class, amount, now])
}

/// Inserts one allocation. The provider's usage stays unchanged.
pub fn insert_allocation(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    provider: ProviderId,
    class: &ResourceClass,
    amount: i64,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(INSERT_ALLOCATION, params![id, provider, class, amount, now])
}

/// Inserts new allocations of a consumer, up to four per statement.
pub fn insert_allocations(
    tx: &mut Tx<'_>,
    id: ConsumerId,
    amounts: &[(ProviderId, &ResourceClass, i64)],
    now: Timestamp,
) -> Result<(), Error> {
    for some in amounts.chunks(4) {
        let mut values = params![id, now].to_vec();
        for (provider, class, amount) in some {
            values.extend(params![*provider, *class, *amount].iter().cloned());
        }
        match some {
            [(provider, class, amount)] => {
                insert_allocation(tx, id, *provider, class, *amount, now)?;
            }
            [_, _] => tx.defer(INSERT_TWO_ALLOCATIONS, &values)?,
            [_, _, _] => tx.defer(INSERT_THREE_ALLOCATIONS, &values)?,
            _ => tx.defer(INSERT_FOUR_ALLOCATIONS, &values)?,
        }
    }
    Ok(())
}

/// True if a provider has allocations.
pub fn any_on(tx: &mut Tx<'_>, provider: ProviderId) -> Result<bool, Error> {
    Ok(tx.row(ANY_ON_PROVIDER, params![provider])?.is_some())
}

/// True if a consumer has an allocation on a provider.
pub fn has_allocation_on(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    provider: ProviderId,
) -> Result<bool, Error> {
    Ok(tx.row(HAS_ALLOCATION_ON, params![consumer, provider])?.is_some())
}

/// True if another consumer has an allocation on any of these providers.
pub fn is_used_by_another(
    tx: &mut Tx<'_>,
    providers: &[ProviderId],
    consumer: ConsumerId,
) -> Result<bool, Error> {
    let providers: Vec<Value> = providers.iter().map(|provider| Value::from(*provider)).collect();
    let asked = tx.ask_list(USERS_OF, &providers)?;
    for row in tx.answers(asked)? {
        let other: ConsumerId = row.id("consumer_id")?;
        if other != consumer {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One allocation on a provider.
#[derive(Debug, Clone)]
pub struct OnProviderRow {
    /// The consumer.
    pub consumer: ConsumerId,
    /// The class.
    pub class: ResourceClass,
    /// The amount.
    pub used: i64,
    /// Time of the last write.
    pub updated_at: Timestamp,
    /// The consumer's generation.
    pub generation: i64,
}

/// The allocations on a provider.
pub fn on_provider(tx: &mut Tx<'_>, id: ProviderId) -> Result<Vec<OnProviderRow>, Error> {
    let read = |row: &Row| {
        Ok(OnProviderRow {
            consumer: row.id("consumer_id")?,
            class: row.class("class")?,
            used: row.int("used")?,
            updated_at: row.time("updated_at")?,
            generation: row.int("generation")?,
        })
    };
    tx.rows(ON_PROVIDER, params![id])?.iter().map(read).collect()
}

/// Usage of a project (or of one of its users) by consumer type and class.
pub fn usage(
    tx: &mut Tx<'_>,
    project: &str,
    user: Option<&str>,
) -> Result<Vec<(Option<String>, ResourceClass, i64)>, Error> {
    tx.rows(USAGE, params![project, user])?
        .iter()
        .map(|row| Ok((row.string_opt("consumer_type")?, row.class("class")?, row.int("used")?)))
        .collect()
}

/// Number of consumers of a project (or of one of its users) by type.
pub fn count(
    tx: &mut Tx<'_>,
    project: &str,
    user: Option<&str>,
) -> Result<Vec<(Option<String>, i64)>, Error> {
    tx.rows(COUNT, params![project, user])?
        .iter()
        .map(|row| Ok((row.string_opt("consumer_type")?, row.int("count")?)))
        .collect()
}
