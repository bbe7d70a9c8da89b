//! Trusts: a user (the trustor) lets another (the trustee) act on one of his projects with some of
//! his roles, until a time, so many times, under the one's name or the other's. A trustee may pass
//! a trust on if it says so, never with more than it gives.

use kilonova_store::Tx;
use kilonova_wire::time;
use serde_json::Value;

use super::session::{Session, first_trustor};
use super::{Fields, flag, text};
use crate::db::roles::{self, Role};
use crate::db::trusts::{self, Trust};
use crate::db::{projects, users};
use crate::{Error, Identity, new_id};

/// Trusts that a user may have given.
const MOST: usize = 10_000;

/// A trust with the roles that were given.
pub(crate) type WithRoles = (Trust, Vec<Role>);

/// Whose trusts are listed.
#[derive(Debug, Clone)]
pub(crate) enum Whose {
    All,
    Trustor(String),
    Trustee(String),
}

/// What is asked for, as the body says it.
struct Asked {
    trust: Trust,
    redelegates: bool,
    count: Option<i64>,
    roles: Vec<Value>,
}

fn live(trust: &Trust, now: i64) -> bool {
    trust.expires_at.is_none_or(|at| at > now) && trust.remaining_uses != Some(0)
}

impl Identity {
    /// A trust that can be used. The others are as good as gone, as upstream's are.
    pub(crate) async fn trust(&self, id: &str) -> Result<WithRoles, Error> {
        let id = id.to_owned();
        self.read(move |tx| {
            let now = time::now_micros();
            let trust = trusts::by_id(tx, &id)?
                .filter(|trust| live(trust, now))
                .ok_or_else(|| Error::NotFound("trust", id.clone()))?;
            let roles = roles::of_trust(tx, &id)?;
            Ok((trust, roles))
        })
        .await
    }

    pub(crate) async fn trusts(&self, whose: Whose) -> Result<Vec<Trust>, Error> {
        self.read(move |tx| {
            Ok(match &whose {
                Whose::All => trusts::all(tx)?,
                Whose::Trustor(id) => trusts::of_trustor(tx, id)?,
                Whose::Trustee(id) => trusts::of_trustee(tx, id)?,
            })
        })
        .await
    }

    pub(crate) async fn delete_trust(&self, id: &str) -> Result<(), Error> {
        let id = id.to_owned();
        self.change(move |tx| match trusts::delete(tx, &id)? {
            true => Ok(()),
            false => Err(Error::NotFound("trust", id.clone())),
        })
        .await
    }

    /// Makes one for the session's own user.
    pub(crate) async fn create_trust(
        &self,
        session: &Session,
        fields: &Fields,
    ) -> Result<WithRoles, Error> {
        if session.credential.is_some() {
            return Err(Error::Forbidden("Delegated tokens cannot manage trusts"));
        }
        let asked = read(fields)?;
        if asked.trust.project.is_some() && asked.roles.is_empty() {
            return Err(Error::Forbidden("At least one role should be specified"));
        }
        if asked.trust.trustor != session.user.id {
            return Err(Error::Forbidden("The authenticated user should match the trustor"));
        }
        let parent = session.trust.as_ref().map(|trust| trust.id.clone());
        let most = self.inner.max_redelegation;
        self.change(move |tx| create(tx, &asked, parent.as_deref(), most)).await
    }
}

fn create(
    tx: &mut Tx<'_>,
    asked: &Asked,
    parent: Option<&str>,
    most: i64,
) -> Result<WithRoles, Error> {
    let mut trust = asked.trust.clone();
    let now = time::now_micros();
    if users::by_id(tx, &trust.trustee)?.is_none() {
        return Err(Error::NotFound("user", trust.trustee));
    }
    let Some(project) = trust.project.clone() else {
        return Err(Error::Invalid("A trust is for a project here: name it in project_id.".into()));
    };
    if projects::by_id(tx, &project)?.is_none() {
        return Err(Error::NotFound("project", project));
    }
    if trusts::of_trustor(tx, &trust.trustor)?.len() >= MOST {
        return Err(Error::Refused(format!(
            "A user may have given {MOST} trusts. Delete some with DELETE /v3/OS-TRUST/trusts/ID."
        )));
    }
    let given = wanted_roles(tx, &asked.roles)?;
    let chain = match parent {
        None => Vec::new(),
        Some(id) => pedigree(tx, id, now)?,
    };
    let first = chain.last().map_or(trust.trustor.as_str(), |link| link.trustor.as_str());
    let held = roles::effective(tx, first, &project)?;
    if let Some(role) = given.iter().find(|role| !held.iter().any(|held| held.id == role.id)) {
        return Err(Error::NotFound("role", role.id.clone()));
    }
    trust.redelegation_count = depth(asked, most)?;
    if let Some(parent) = chain.first() {
        let left = parent.redelegation_count - 1;
        if asked.redelegates && asked.count.is_some_and(|count| count != left) {
            return Err(Error::Refused(
                "Modifying \"redelegation_count\" upon redelegation is forbidden. Omitting this \
                 parameter is advised."
                    .into(),
            ));
        }
        if asked.redelegates {
            trust.redelegation_count = left;
        }
        trust.parent = Some(parent.id.clone());
    }
    for link in &chain {
        passes_on(tx, link, &mut trust, &given, most)?;
    }
    let ids: Vec<String> = given.iter().map(|role| role.id.clone()).collect();
    trusts::insert(tx, &trust, &ids)?;
    Ok((trust, given))
}

/// The trust and those that it passes on, up to the first.
fn pedigree(tx: &mut Tx<'_>, id: &str, now: i64) -> Result<Vec<Trust>, Error> {
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

/// How often the trust may be passed on.
fn depth(asked: &Asked, most: i64) -> Result<i64, Error> {
    if !asked.redelegates || asked.count == Some(0) {
        return Ok(0);
    }
    if asked.trust.remaining_uses.is_some() {
        return Err(Error::Invalid(
            "remaining_uses must not be set if redelegation is allowed".into(),
        ));
    }
    match asked.count {
        Some(count) if count > most => Err(Error::Refused(format!(
            "Requested redelegation depth of {count} is greater than allowed {most}"
        ))),
        count => Ok(count.unwrap_or(most)),
    }
}

/// What is passed on is never more than what was given.
fn passes_on(
    tx: &mut Tx<'_>,
    parent: &Trust,
    trust: &mut Trust,
    given: &[Role],
    most: i64,
) -> Result<(), Error> {
    let refuse = |why: String| Err(Error::Refused(why));
    let depth = parent.redelegation_count;
    if depth <= 0 || depth > most {
        return refuse(format!(
            "Remaining redelegation depth of {depth} out of allowed range of [0..{most}]"
        ));
    }
    if let Some(uses) = trust.remaining_uses {
        return refuse(format!(
            "Field \"remaining_uses\" is set to {uses} while it must not be set in order to \
             redelegate a trust"
        ));
    }
    match (parent.expires_at, trust.expires_at) {
        (Some(end), Some(wished)) if end < wished => {
            return refuse(
                "Requested expiration time is more than redelegated trust can provide".into(),
            );
        }
        (Some(end), None) => trust.expires_at = Some(end),
        _ => {}
    }
    if parent.project != trust.project {
        return refuse("A trust is passed on for its own project".into());
    }
    let theirs = roles::of_trust(tx, &parent.id)?;
    if given.iter().any(|role| !theirs.iter().any(|their| their.id == role.id)) {
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

fn wanted_roles(tx: &mut Tx<'_>, wanted: &[Value]) -> Result<Vec<Role>, Error> {
    let mut found: Vec<Role> = Vec::new();
    for role in wanted {
        let field = |key: &str| role.get(key).and_then(Value::as_str);
        let (given, asked) = match (field("id"), field("name")) {
            (Some(id), _) => (roles::by_id(tx, id)?, id),
            (None, Some(name)) => (roles::by_name(tx, name)?, name),
            (None, None) => {
                return Err(Error::Invalid(
                    "roles has to be a list of objects with an id or a name.".into(),
                ));
            }
        };
        let given = given.ok_or_else(|| Error::NotFound("role", asked.to_owned()))?;
        if !found.contains(&given) {
            found.push(given);
        }
    }
    Ok(found)
}

fn read(fields: &Fields) -> Result<Asked, Error> {
    let user = |key: &'static str| text(fields, key)?.ok_or(Error::Missing(key, "trust"));
    let number = |key: &str, least: i64| match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_i64().filter(|number| (least..=1 << 31).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(Error::Invalid(format!("{key} has to be a number of at least {least}."))),
        },
    };
    let expires_at = super::expiry(fields)?;
    let roles = match fields.get("roles") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(roles)) => roles.clone(),
        Some(_) => return Err(Error::Invalid("roles has to be a list.".into())),
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
    Ok(Asked {
        trust,
        redelegates: flag(fields, "allow_redelegation")?.unwrap_or(false),
        count: number("redelegation_count", 0)?,
        roles,
    })
}
