//! Limits: built-in, of the class `default`, of a project, of a user in it. Each level overrides
//! the previous one.

use kilonova_compute_db::quotas::{self as rows, Limits};
use kilonova_node_api::InjectedFile;
use kilonova_store::{Asked, Tx};
use kilonova_wire::{Context, Refusal};

use crate::{Error, usage};

/// The quota class with the default limits of all projects.
pub const DEFAULT_CLASS: &str = "default";

/// Every resource with Nova's default, in the order of responses. `-1` means no limit.
pub const RESOURCES: &[(&str, i64)] = &[
    ("cores", 20),
    ("fixed_ips", -1),
    ("floating_ips", -1),
    ("injected_file_content_bytes", 10240),
    ("injected_file_path_bytes", 255),
    ("injected_files", 5),
    ("instances", 10),
    ("key_pairs", 100),
    ("metadata_items", 128),
    ("ram", 51200),
    ("security_group_rules", -1),
    ("security_groups", -1),
    ("server_group_members", 10),
    ("server_groups", 10),
];

fn built_in() -> Limits {
    RESOURCES.iter().map(|(name, limit)| ((*name).to_owned(), *limit)).collect()
}

/// The limits of a class.
///
/// # Errors
/// Store errors; all functions below also return them, in addition to the errors that they name.
pub fn of_class(tx: &mut Tx<'_>, class: &str) -> Result<Limits, Error> {
    let mut limits = built_in();
    limits.extend(rows::of_class(tx, class)?);
    Ok(limits)
}

/// The effective limits of a project, or of a user in it.
pub fn limits(tx: &mut Tx<'_>, project_id: &str, user_id: Option<&str>) -> Result<Limits, Error> {
    let (mut limits, own) = both(tx, project_id, user_id)?;
    limits.extend(own);
    Ok(limits)
}

/// The effective limits of a project, and those set for a user in it.
pub fn both(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: Option<&str>,
) -> Result<(Limits, Limits), Error> {
    let asked = ask_both(tx, project_id, user_id)?;
    both_of(tx, asked)
}

/// Asks for [`both`].
pub fn ask_both(tx: &mut Tx<'_>, project_id: &str, user_id: Option<&str>) -> Result<Asked, Error> {
    Ok(rows::ask_all(tx, DEFAULT_CLASS, project_id, user_id)?)
}

/// The limits that [`ask_both`] requested.
pub fn both_of(tx: &mut Tx<'_>, asked: Asked) -> Result<(Limits, Limits), Error> {
    let levels = rows::levels(tx, asked)?;
    let mut limits = built_in();
    limits.extend(levels.class);
    limits.extend(levels.project);
    Ok((limits, levels.user))
}

/// The limits on the metadata and the files of a request that apply to a caller, not read yet.
#[must_use = "a request may exceed a limit"]
pub struct AskedRequestLimits(Asked);

/// Asks for the caller's limits on a request, so that other statements can share their round trip.
/// As upstream, they are those of the caller's project, not of the server's.
pub fn ask_request_limits(tx: &mut Tx<'_>, context: &Context) -> Result<AskedRequestLimits, Error> {
    let asked = ask_both(tx, &context.project_id, Some(&context.user_id))?;
    Ok(AskedRequestLimits(asked))
}

impl AskedRequestLimits {
    fn read(self, tx: &mut Tx<'_>) -> Result<RequestLimits, Error> {
        let (project, user) = both_of(tx, self.0)?;
        Ok(RequestLimits([project, user]))
    }

    /// The limit that so many metadata items exceed, if any.
    pub fn exceeded(self, tx: &mut Tx<'_>, items: usize) -> Result<Option<i64>, Error> {
        Ok(self.read(tx)?.exceeded("metadata_items", items))
    }

    /// Refuses more metadata items, or more or larger files, than the limits allow
    /// (`_check_metadata_properties_quota` and `_check_injected_file_quota` in
    /// `nova/compute/api.py`). As upstream, a content counts as the client sent it, in base64. 403
    /// naming the limit.
    pub fn check(self, tx: &mut Tx<'_>, items: usize, files: &[InjectedFile]) -> Result<(), Error> {
        let limits = self.read(tx)?;
        let longest =
            |length: fn(&InjectedFile) -> usize| files.iter().map(length).max().unwrap_or_default();
        if let Some(limit) = limits.exceeded("metadata_items", items) {
            let why = format!("Maximum number of metadata items exceeds {limit}");
            return Err(Refusal::forbidden(why).into());
        }
        if limits.exceeded("injected_files", files.len()).is_some() {
            return Err(Refusal::forbidden("Personality file limit exceeded").into());
        }
        for (resource, amount, part) in [
            ("injected_file_path_bytes", longest(|file| file.path.chars().count()), "path"),
            (
                "injected_file_content_bytes",
                longest(|file| file.contents.chars().count()),
                "content",
            ),
        ] {
            if let Some(limit) = limits.exceeded(resource, amount) {
                let why = format!("Personality file {part} exceeds maximum {limit}");
                return Err(Refusal::forbidden(why).into());
            }
        }
        Ok(())
    }
}

/// The limits of a project, and those of the user in it.
struct RequestLimits([Limits; 2]);

impl RequestLimits {
    /// The limit of a resource that this amount exceeds, if any: the project's, or the user's in it.
    fn exceeded(&self, resource: &str, amount: usize) -> Option<i64> {
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        let mut limits = self.0.iter().filter_map(|level| level.get(resource).copied());
        limits.find(|limit| *limit >= 0 && amount > *limit)
    }
}

/// The usage of each counted resource.
pub fn used(tx: &mut Tx<'_>, project_id: &str, user_id: Option<&str>) -> Result<Limits, Error> {
    let used = match user_id {
        None => usage::of_project(tx, project_id)?,
        Some(user_id) => usage::of_user(tx, project_id, user_id)?,
    };
    let groups = kilonova_compute_db::server_groups::count(tx, project_id, user_id)?;
    let counts = [
        ("instances", used.instances),
        ("cores", used.cores),
        ("ram", used.ram),
        ("server_groups", groups),
    ];
    Ok(counts.map(|(name, used)| (name.to_owned(), used)).into())
}

/// Sets limits of a project, or of a user in it. Unless `force` is set, 400 for a limit below the
/// usage, for a user above what the project's other users leave, and for a project below its users'.
pub fn update(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: Option<&str>,
    wanted: &[(String, i64)],
    force: bool,
) -> Result<Limits, Error> {
    if !force {
        let used = used(tx, project_id, user_id)?;
        let (project, own) = both(tx, project_id, user_id)?;
        let users = rows::of_users(tx, project_id)?;
        for (resource, limit) in wanted {
            let of = |limits: &Limits| limits.get(resource).copied();
            let own = user_id.map(|_| of(&own).unwrap_or(0));
            let (least, most) = settable(
                of(&project).unwrap_or(-1),
                of(&users).unwrap_or(0),
                own,
                of(&used).unwrap_or(0),
            );
            check(resource, *limit, least, most)?;
        }
    }
    for (resource, limit) in wanted {
        rows::put(tx, project_id, user_id, resource, *limit)?;
    }
    limits(tx, project_id, user_id)
}

/// The minimum and the maximum of a limit; -1 is no maximum. The minimum is the usage; for a project, also the sum of
/// its users' limits. The maximum for a user is the rest of the project's limit after the limits of all users, plus the
/// user's `own` limit. As upstream (`get_settable_quotas` in `nova/quota.py`), only the usage is a bound if the project
/// or the user has no limit, or if the users have more than the project.
fn settable(project: i64, users: i64, own: Option<i64>, used: i64) -> (i64, i64) {
    let left = project.saturating_sub(users);
    let is_bounded = project >= 0 && left >= 0;
    match own {
        Some(own) if is_bounded && own >= 0 => (used, left.saturating_add(own)),
        None if is_bounded => (used.max(users), -1),
        _ => (used, -1),
    }
}

fn check(resource: &str, limit: i64, least: i64, most: i64) -> Result<(), Refusal> {
    let endless = |limit: i64| if limit == -1 { i64::MAX } else { limit };
    if endless(limit) < least {
        return Err(Refusal::bad_request(format!(
            "Quota limit {limit} for {resource} must be greater than or equal to already used and \
             reserved {least}."
        )));
    }
    if endless(limit) > endless(most) {
        return Err(Refusal::bad_request(format!(
            "Quota limit {limit} for {resource} must be less than or equal to {most}."
        )));
    }
    Ok(())
}
