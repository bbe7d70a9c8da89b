//! Implied roles. A change affects tokens from their next validation on.

use kilonova_store::Tx;

use crate::db::roles::{self, Role};
use crate::{Error, Identity};

/// The role that no role may imply, as with Keystone's `[assignment] prohibited_implied_role`.
const PROHIBITED: &str = "admin";

fn role(tx: &mut Tx<'_>, id: &str) -> Result<Role, Error> {
    roles::by_id(tx, id)?.ok_or_else(|| Error::NotFound("role", id.to_owned()))
}

/// Both roles of an existing implication.
fn implication(tx: &mut Tx<'_>, prior: &str, implied: &str) -> Result<(Role, Role), Error> {
    let both = (role(tx, prior)?, role(tx, implied)?);
    match roles::implies(tx, prior, implied)? {
        true => Ok(both),
        false => Err(Error::NotImplied(prior.to_owned(), implied.to_owned())),
    }
}

impl Identity {
    /// Every role that implies others, with the roles that it implies directly.
    pub(crate) async fn inferences(&self) -> Result<Vec<(Role, Vec<Role>)>, Error> {
        self.read(|tx| {
            let mut all = Vec::new();
            for prior in roles::list(tx, None)? {
                let implied = roles::implied_by(tx, &prior.id)?;
                if !implied.is_empty() {
                    all.push((prior, implied));
                }
            }
            Ok(all)
        })
        .await
    }

    /// A role, and the roles that it implies directly.
    pub(crate) async fn implied_by(&self, prior: &str) -> Result<(Role, Vec<Role>), Error> {
        let prior = prior.to_owned();
        self.read(move |tx| Ok((role(tx, &prior)?, roles::implied_by(tx, &prior)?))).await
    }

    /// Both roles of an existing implication.
    pub(crate) async fn implication(
        &self,
        prior: &str,
        implied: &str,
    ) -> Result<(Role, Role), Error> {
        let (prior, implied) = (prior.to_owned(), implied.to_owned());
        self.read(move |tx| implication(tx, &prior, &implied)).await
    }

    /// Makes the first role imply the second.
    pub(crate) async fn imply(&self, prior: &str, implied: &str) -> Result<(Role, Role), Error> {
        let (prior, implied) = (prior.to_owned(), implied.to_owned());
        self.change(move |tx| {
            let both = (role(tx, &prior)?, role(tx, &implied)?);
            if both.1.name == PROHIBITED {
                return Err(Error::Refused(format!("{implied} cannot be an implied roles.")));
            }
            if roles::imply(tx, &prior, &implied)? {
                return Ok(both);
            }
            Err(Error::Duplicate("implied_role", both.1.name))
        })
        .await
    }

    /// Deletes an implication.
    pub(crate) async fn no_longer_imply(&self, prior: &str, implied: &str) -> Result<(), Error> {
        let (prior, implied) = (prior.to_owned(), implied.to_owned());
        self.change(move |tx| {
            implication(tx, &prior, &implied)?;
            roles::no_longer_imply(tx, &prior, &implied)?;
            Ok(())
        })
        .await
    }
}
