//! The SQL of servers.

/// The columns of a [`Server`](super::Server).
macro_rules! columns {
    () => {
        "seq, id, project_id, user_id, name, description, host, vm_state, task_state,
        power_state, spec, metadata, tags, fault, created_at, updated_at, launched_at,
        locked_by, locked_reason, machine_type"
    };
}
pub(super) use columns;

kilonova_store::statements! {
    /// Inserts a server; returns its number.
    INSERT = "INSERT INTO servers (id, project_id, user_id, name, description, host, vm_state,
        task_state, power_state, vcpus, memory_mb, spec, metadata, tags, fault, created_at, updated_at,
        has_files)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?16, ?17)
        RETURNING seq";
    /// One server.
    FIND = concat!("SELECT ", columns!(), " FROM servers WHERE id = ?1");
    /// Some servers.
    SOME = concat!("SELECT ", columns!(), " FROM servers WHERE id IN ({})");
    /// Sets the states.
    SET_STATE = "UPDATE servers SET vm_state = ?2, task_state = ?3, power_state = ?4, updated_at = ?5,
        fault = NULL WHERE id = ?1";
    /// Sets the state that an operator chose. The fault stays.
    RESET_STATE = "UPDATE servers SET vm_state = ?2, task_state = NULL, updated_at = ?3 WHERE id = ?1";
    /// Sets a built server active and records its first start, unless it is being deleted.
    SET_BUILT = "UPDATE servers SET vm_state = 'active', task_state = NULL, power_state = ?2,
        updated_at = ?3, launched_at = COALESCE(launched_at, ?3), fault = NULL
        WHERE id = ?1 AND vm_state <> 'soft-delete'";
    /// Sets the power state.
    SET_POWER = "UPDATE servers SET power_state = ?2, updated_at = ?3 WHERE id = ?1";
    /// Sets the task state.
    SET_TASK = "UPDATE servers SET task_state = ?2, updated_at = ?3 WHERE id = ?1";
    /// Records the first start.
    SET_LAUNCHED = "UPDATE servers SET launched_at = ?2 WHERE id = ?1 AND launched_at IS NULL";
    /// Records a start on new disks or at another place.
    SET_RELAUNCHED = "UPDATE servers SET launched_at = ?2 WHERE id = ?1";
    /// Sets the machine type of a server on a host, if it differs.
    SET_MACHINE_TYPE = "UPDATE servers SET machine_type = ?3
        WHERE id = ?1 AND host = ?2 AND COALESCE(machine_type, '') <> ?3";
    /// Removes the machine type of a server.
    CLEAR_MACHINE_TYPE = "UPDATE servers SET machine_type = NULL WHERE id = ?1";
    /// Sets the host.
    SET_HOST = "UPDATE servers SET host = ?2, updated_at = ?3 WHERE id = ?1 RETURNING spec";
    /// Replaces the spec.
    SET_SPEC = "UPDATE servers SET spec = ?2, updated_at = ?3, has_files = ?4 WHERE id = ?1";
    /// The servers on a host.
    IDS_ON = "SELECT id FROM servers WHERE host = ?1 ORDER BY seq";
    /// The states of the servers on a host.
    STATES_ON = "SELECT id, vm_state, task_state, launched_at FROM servers WHERE host = ?1 ORDER BY seq";
    /// The host of a server.
    HOST_OF = "SELECT host FROM servers WHERE id = ?1";
    /// Sets the flavor.
    SET_FLAVOR = "UPDATE servers SET spec = ?2, vcpus = ?3, memory_mb = ?4, updated_at = ?5
        WHERE id = ?1";
    /// Sets a fault.
    SET_ERROR = "UPDATE servers SET vm_state = 'error', task_state = NULL, fault = ?2, updated_at = ?3
        WHERE id = ?1";
    /// Sets name, description and host name.
    SET_TEXT = "UPDATE servers SET name = ?2, description = ?3, spec = ?4, updated_at = ?5,
        has_files = ?6 WHERE id = ?1";
    /// Replaces the metadata.
    SET_METADATA = "UPDATE servers SET metadata = ?2, updated_at = ?3 WHERE id = ?1";
    /// Replaces the tags.
    SET_TAGS = "UPDATE servers SET tags = ?2, updated_at = ?3 WHERE id = ?1";
    /// Sets or clears the lock.
    SET_LOCK = "UPDATE servers SET locked_by = ?2, locked_reason = ?3 WHERE id = ?1";
    /// By host: the number of servers, and the number of those being built, moved or snapshotted.
    LOADS = "SELECT host, COUNT(*) AS count, CAST(SUM(CASE WHEN vm_state = 'building' OR task_state IN
        ('rebuilding', 'rebuild_spawning', 'resize_prep', 'resize_migrating', 'resize_migrated',
        'resize_finish', 'migrating', 'image_snapshot', 'image_snapshot_pending', 'image_backup',
        'image_uploading', 'unshelving')
        THEN 1 ELSE 0 END) AS BIGINT) AS busy FROM servers WHERE host IS NOT NULL GROUP BY host";
    /// Deletes a server.
    DELETE = "DELETE FROM servers WHERE id = ?1 RETURNING spec";
}
