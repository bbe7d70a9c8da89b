//! The journal's SQL.

/// Selects [`Operation`](crate::Operation)s.
macro_rules! select {
    () => {
        "SELECT id, kind, subject, request_id, project_id, user_id, step, version, data, \
         outcome, message, created_at, updated_at FROM operations"
    };
}

/// Inserts an open operation.
macro_rules! begin {
    () => {
        "INSERT INTO operations (id, kind, subject, open_subject, request_id, project_id, user_id,
        step, version, data, outcome, created_at, updated_at)
        VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6, ?7, 0, ?8, 'open', ?9, ?9)"
    };
}

kilonova_store::statements! {
    /// Begins an operation.
    BEGIN = begin!();
    /// Begins an operation unless the server has an open one.
    BEGIN_IF_FREE = concat!(begin!(), " ON CONFLICT DO NOTHING RETURNING id");
    /// Records an operation that is over already.
    RECORD = "INSERT INTO operations (id, kind, subject, request_id, project_id, user_id,
        step, version, data, outcome, created_at, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9, ?10, ?10)";
    /// The open operation of a server.
    OPEN_OF = concat!(select!(), " WHERE open_subject = ?1");
    /// The open operations of some servers.
    OPEN_OF_SOME = concat!(select!(), " WHERE open_subject IN ({})");
    /// Advances an operation, unless another transaction has advanced it.
    ADVANCE = "UPDATE operations SET step = ?3, data = ?4, version = version + 1, updated_at = ?5
        WHERE id = ?1 AND version = ?2 AND outcome = 'open'";
    /// Ends an operation.
    FINISH = "UPDATE operations SET outcome = ?2, message = ?3, open_subject = NULL,
        version = version + 1, updated_at = ?4 WHERE id = ?1 AND outcome = 'open'";
    /// Cancels the open operation of a server if it is of a kind.
    CANCEL = "UPDATE operations SET outcome = 'cancelled', message = ?3, open_subject = NULL,
        version = version + 1, updated_at = ?4 WHERE open_subject = ?1 AND kind = ?2";
    /// Turns an operation that was recorded as done into a failed one.
    FAIL_RECORDED = "UPDATE operations SET outcome = 'failed', message = ?2, version = version + 1,
        updated_at = ?3 WHERE id = ?1 AND outcome = 'done'";
    /// Ends the events of an operation that are in progress.
    END_EVENTS = "UPDATE operation_events SET result = 'Success', finished_at = ?2
        WHERE operation_id = ?1 AND finished_at IS NULL";
    /// Turns the events of an operation into failures.
    FAIL_EVENTS = "UPDATE operation_events SET result = 'Error', details = ?2, finished_at = ?3
        WHERE operation_id = ?1";
    /// The operations of a server, newest first.
    HISTORY = concat!(select!(), " WHERE subject = ?1
        ORDER BY created_at DESC, id DESC LIMIT ?2");
    /// The operation of a request.
    ONE = concat!(select!(), " WHERE subject = ?1 AND request_id = ?2");
    /// Adds an event.
    EVENT = "INSERT INTO operation_events (operation_id, name, host, result, details, started_at,
        finished_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    /// The events of an operation.
    EVENTS = "SELECT name, host, result, details, started_at, finished_at FROM operation_events
        WHERE operation_id = ?1 ORDER BY seq";
    /// The number of open operations of each kind.
    OPEN_BY_KIND = "SELECT kind, COUNT(*) AS count FROM operations WHERE outcome = 'open'
        GROUP BY kind ORDER BY kind";
    /// Open operations that have not advanced since a time.
    OPEN_SINCE = concat!(select!(), " WHERE outcome = 'open'
        AND updated_at <= ?1 ORDER BY updated_at, id LIMIT ?2");
    /// Sets times in the future to the present.
    REDATE = "UPDATE operations SET updated_at = ?1,
        created_at = CASE WHEN created_at > ?1 THEN ?1 ELSE created_at END WHERE updated_at > ?1";
    /// Deletes old, ended operations, a bounded number at a time.
    PURGE = "DELETE FROM operations WHERE id IN (SELECT id FROM operations
        WHERE outcome <> 'open' AND updated_at < ?1 ORDER BY updated_at LIMIT ?2)";
}
