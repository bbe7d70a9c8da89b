//! Trusts: a user (the trustor) lets another (the trustee) act on one project with some of the
//! trustor's roles, optionally with an expiry, a limited number of uses, and impersonation of the
//! trustor. A trustee may redelegate a trust that allows it, never with more rights.

use jiff::Timestamp;
use kilonova_store::Tx;
use kilonova_wire::time;
use serde_json::Value;

use super::session::{Session, first_trustor};
use super::{Fields, flag, text};
use crate::db::roles::{self, Role};
use crate::db::trusts::{self, Trust};
use crate::db::{projects, users};
use crate::{Error, Identity, new_id};

/// Maximum number of trusts that a user may have given.
const MOST: i64 = 10_000;

/// A trust with its roles.
pub(crate) type WithRoles = (Trust, Vec<Role>);

/// The trusts to list.
#[derive(Debug, Clone)]
pub(crate) enum TrustFilter {
    All,
    Trustor(String),
    Trustee(String),
}

/// A parsed request for a trust.
struct TrustRequest {
    trust: Trust,
    allow_redelegation: bool,
    count: Option<i64>,
    roles: Vec<Value>,
}

/// True unless the trust has ended or is used up.
pub(super) fn is_usable(trust: &Trust, now: Timestamp) -> bool {
    trust.expires_at.is_none_or(|at| at > now) && trust.remaining_uses != Some(0)
}

impl Identity {
    /// A usable trust. For clients an expired or used-up trust does not exist, as in Keystone.
    pub(crate) async fn trust(&self, id: &str) -> Result<WithRoles, Error> {
        let id = id.to_owned();
        self.read(move |tx| {
            let now = time::now();
            let trust = trusts::by_id(tx, &id)?
                .filter(|trust| is_usable(trust, now))
                .ok_or_else(Error::not_found("trust", &id))?;
            let roles = roles::of_trust(tx, &id)?;
            Ok((trust, roles))
        })
        .await
    }

    pub(crate) async fn trusts(&self, filter: TrustFilter) -> Result<Vec<Trust>, Error> {
        self.read(move |tx| {
            Ok(match &filter {
                TrustFilter::All => trusts::all(tx)?,
                TrustFilter::Trustor(id) => trusts::of_trustor(tx, id)?,
                TrustFilter::Trustee(id) => trusts::of_trustee(tx, id)?,
            })
        })
        .await
    }

    pub(crate) async fn delete_trust(&self, id: &str) -> Result<(), Error> {
        let id = id.to_owned();
        self.change(move |tx| Error::unless_found(trusts::delete(tx, &id)?, "trust", &id)).await
    }

    /// Creates a trust given by the session's user. The caller has checked [`refuse_credential`].
    pub(crate) async fn create_trust(
        &self,
        session: &Session,
        fields: &Fields,
    ) -> Result<WithRoles, Error> {
        let request = read(fields)?;
        if request.trust.project.is_some() && request.roles.is_empty() {
            return Err(Error::Forbidden("At least one role should be specified"));
        }
        if request.trust.trustor != session.user.id {
            return Err(Error::Forbidden("The authenticated user should match the trustor"));
        }
        let parent = session.trust.as_ref().map(|trust| trust.id.clone());
        let max_redelegation = self.inner.max_redelegation;
        self.change(move |tx| create(tx, &request, parent.as_deref(), max_redelegation)).await
    }
}

/// Refuses to read and manage trusts with an application credential, restricted or not, as
/// `_check_application_credential` of `keystone/api/trusts.py`: the credential is for one project only.
pub(crate) fn refuse_credential(session: &Session) -> Result<(), Error> {
    match session.credential {
        Some(_) => Err(Error::Forbidden(
            "Using method 'application_credential' is not allowed for managing trusts.",
        )),
        None => Ok(()),
    }
}

fn create(
    tx: &mut Tx<'_>,
    request: &TrustRequest,
    parent: Option<&str>,
    max_redelegation: i64,
) -> Result<WithRoles, Error> {
    let mut trust = request.trust.clone();
    let now = time::now();
    if users::by_id(tx, &trust.trustee)?.is_none() {
        return Err(Error::NotFound("user", trust.trustee));
    }
    let Some(project) = trust.project.clone() else {
        return Err(Error::Invalid("A trust requires a project: set project_id.".into()));
    };
    if projects::by_id(tx, &project)?.is_none() {
        return Err(Error::NotFound("project", project));
    }
    users::touch(tx, &trust.trustor)?;
    if trusts::count(tx, &trust.trustor)? >= MOST {
        return Err(Error::Refused(format!(
            "A user may give at most {MOST} trusts. Delete some with DELETE /v3/OS-TRUST/trusts/ID."
        )));
    }
    let roles = requested_roles(tx, &request.roles)?;
    let chain = match parent {
        None => Vec::new(),
        Some(id) => delegation_chain(tx, id, now)?,
    };
    let first = chain.last().map_or(trust.trustor.as_str(), |link| link.trustor.as_str());
    let held = roles::effective(tx, first, &project)?;
    if let Some(role) = roles.iter().find(|role| !held.iter().any(|held| held.id == role.id)) {
        return Err(Error::NotFound("role", role.id.clone()));
    }
    trust.redelegation_count = depth(request, max_redelegation)?;
    if let Some(parent) = chain.first() {
        let left = parent.redelegation_count - 1;
        if request.allow_redelegation && request.count.is_some_and(|count| count != left) {
            return Err(Error::Refused(
                "Modifying \"redelegation_count\" upon redelegation is forbidden. Omitting this \
                 parameter is advised."
                    .into(),
            ));
        }
        if request.allow_redelegation {
            trust.redelegation_count = left;
        }
        trust.parent = Some(parent.id.clone());
    }
    for link in &chain {
        check_redelegation(tx, link, &mut trust, &roles, max_redelegation)?;
    }
    let ids: Vec<String> = roles.iter().map(|role| role.id.clone()).collect();
    trusts::insert(tx, &trust, &ids)?;
    Ok((trust, roles))
}

/// The trust and its parents, up to the first trust of the chain.
fn delegation_chain(tx: &mut Tx<'_>, id: &str, now: Timestamp) -> Result<Vec<Trust>, Error> {
    let mut chain = Vec::new();
    let mut next = Some(id.to_owned());
    while let Some(id) = next.take() {
        let trust = trusts::by_id(tx, &id)?.ok_or(Error::NotFound("trust", id))?;
        if chain.is_empty() {
            first_trustor(tx, &trust, now)?;
        }
        next = trust.parent.clone();
        chain.push(trust);
    }
    Ok(chain)
}

/// How many times the trust may be redelegated.
fn depth(request: &TrustRequest, max_redelegation: i64) -> Result<i64, Error> {
    if !request.allow_redelegation || request.count == Some(0) {
        return Ok(0);
    }
    if request.trust.remaining_uses.is_some() {
        return Err(Error::Invalid(
            "remaining_uses must not be set if redelegation is allowed".into(),
        ));
    }
    match request.count {
        Some(count) if count > max_redelegation => Err(Error::Refused(format!(
            "Requested redelegation depth of {count} is greater than allowed {max_redelegation}"
        ))),
        count => Ok(count.unwrap_or(max_redelegation)),
    }
}

/// Refuses a trust with more rights than its parent.
fn check_redelegation(
    tx: &mut Tx<'_>,
    parent: &Trust,
    trust: &mut Trust,
    requested: &[Role],
    max_redelegation: i64,
) -> Result<(), Error> {
    let refuse = |why: String| Err(Error::Refused(why));
    let depth = parent.redelegation_count;
    if depth <= 0 || depth > max_redelegation {
        return refuse(format!(
            "Remaining redelegation depth of {depth} out of allowed range of [0..{max_redelegation}]"
        ));
    }
    if let Some(uses) = trust.remaining_uses {
        return refuse(format!(
            "Field \"remaining_uses\" is set to {uses} while it must not be set in order to \
             redelegate a trust"
        ));
    }
    match (parent.expires_at, trust.expires_at) {
        (Some(end), Some(requested)) if end < requested => {
            return refuse(
                "Requested expiration time is more than redelegated trust can provide".into(),
            );
        }
        (Some(end), None) => trust.expires_at = Some(end),
        _ => {}
    }
    if parent.project != trust.project {
        return refuse("A trust must be redelegated for its own project".into());
    }
    let theirs = roles::of_trust(tx, &parent.id)?;
    if requested.iter().any(|role| !theirs.iter().any(|their| their.id == role.id)) {
        return refuse("Some of requested roles are not in redelegated trust".into());
    }
    if trust.impersonation && !parent.impersonation {
        return refuse(format!(
            "Impersonation is not allowed because redelegated trust does not specify \
             impersonation. Redelegated trust id: {}",
            parent.id
        ));
    }
    Ok(())
}

fn requested_roles(tx: &mut Tx<'_>, requested: &[Value]) -> Result<Vec<Role>, Error> {
    let mut found: Vec<Role> = Vec::new();
    for role in requested {
        let field = |key: &str| role.get(key).and_then(Value::as_str);
        let (role, label) = match (field("id"), field("name")) {
            (Some(id), _) => (roles::by_id(tx, id)?, id),
            (None, Some(name)) => (roles::by_name(tx, name)?, name),
            (None, None) => {
                return Err(Error::Invalid(
                    "roles must be a list of objects with an id or a name.".into(),
                ));
            }
        };
        let role = role.ok_or_else(|| Error::NotFound("role", label.to_owned()))?;
        if !found.contains(&role) {
            found.push(role);
        }
    }
    Ok(found)
}

fn read(fields: &Fields) -> Result<TrustRequest, Error> {
    let user = |key: &'static str| text(fields, key)?.ok_or(Error::Missing(key, "trust"));
    let number = |key: &str, least: i64| match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_i64().filter(|number| (least..=1 << 31).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(Error::Invalid(format!("{key} must be an integer of at least {least}."))),
        },
    };
    let expires_at = super::expiry(fields)?;
    let roles = match fields.get("roles") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(roles)) => {
            super::check_roles(roles)?;
            roles.clone()
        }
        Some(_) => return Err(Error::Invalid("roles must be a list.".into())),
    };
    let trust = Trust {
        id: new_id(),
        trustor: user("trustor_user_id")?,
        trustee: user("trustee_user_id")?,
        project: text(fields, "project_id")?,
        parent: None,
        impersonation: flag(fields, "impersonation")?
            .ok_or(Error::Missing("impersonation", "trust"))?,
        remaining_uses: number("remaining_uses", 1)?,
        expires_at,
        redelegation_count: 0,
        extra: Fields::new(),
    };
    Ok(TrustRequest {
        trust,
        allow_redelegation: flag(fields, "allow_redelegation")?.unwrap_or(false),
        count: number("redelegation_count", 0)?,
        roles,
    })
}
