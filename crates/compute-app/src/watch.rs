//! Detects changes to servers for readers that display them.
//!
//! A reader polls for the few servers that it displays. A poll writes nothing, and sees the commits of all
//! controllers.

use std::collections::HashMap;

use kilonova_compute_db::servers::marks;
pub use kilonova_compute_db::servers::marks::{Mark, NEWEST_COUNT};
use kilonova_ids::ServerId;

use crate::{Compute, Error};

/// The current state of the servers that a reader displays.
#[derive(Debug, Clone, Default)]
pub struct Marks {
    /// The marks of the servers that exist; a mark differs from an earlier one if the server has changed.
    pub servers: HashMap<ServerId, Mark>,
    /// For each requested project, or all projects together for `None`: the numbers of the newest servers, at most
    /// [`NEWEST_COUNT`], newest first.
    pub newest: HashMap<Option<String>, Vec<i64>>,
}

impl Compute {
    /// The marks of servers, and the newest servers of projects.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn marks(
        &self,
        servers: Vec<ServerId>,
        projects: Vec<Option<String>>,
    ) -> Result<Marks, Error> {
        if servers.is_empty() && projects.is_empty() {
            return Ok(Marks::default());
        }
        self.store
            .read(move |tx| {
                let servers = marks::of(tx, &servers)?;
                let mut newest = HashMap::new();
                for project in &projects {
                    let numbers = marks::newest(tx, project.as_deref())?;
                    newest.insert(project.clone(), numbers);
                }
                Ok::<_, Error>(Marks { servers, newest })
            })
            .await
    }
}
