//! The objects that policy rules compare.

use crate::db::groups::{self, Group};
use crate::db::projects::{self, Project};
use crate::db::roles::{self, Role};
use crate::db::users::{self, User};
use crate::{Error, Identity};

/// The ids of the objects to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectIds {
    pub user: Option<String>,
    pub project: Option<String>,
    pub group: Option<String>,
    pub role: Option<String>,
}

/// The objects that exist.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objects {
    pub user: Option<User>,
    pub project: Option<Project>,
    pub group: Option<Group>,
    pub role: Option<Role>,
}

impl Identity {
    /// Reads the objects in one transaction; none if there are no ids.
    pub(crate) async fn objects(&self, ids: ObjectIds) -> Result<Objects, Error> {
        if ids == ObjectIds::default() {
            return Ok(Objects::default());
        }
        self.read(move |tx| {
            let mut found = Objects::default();
            if let Some(id) = &ids.user {
                found.user = users::by_id(tx, id)?;
            }
            if let Some(id) = &ids.project {
                found.project = projects::by_id(tx, id)?;
            }
            if let Some(id) = &ids.group {
                found.group = groups::by_id(tx, id)?;
            }
            if let Some(id) = &ids.role {
                found.role = roles::by_id(tx, id)?;
            }
            Ok(found)
        })
        .await
    }
}
