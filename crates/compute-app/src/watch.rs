//! Which servers have changed, for readers that keep showing them.
//!
//! A reader asks again and again for the few servers that it shows. Nothing is written for it, and a commit
//! of any controller is seen.

use std::collections::HashMap;

use kilonova_compute_db::servers::marks;
pub use kilonova_compute_db::servers::marks::{Mark, NEWEST_COUNT};
use kilonova_ids::ServerId;

use crate::{Compute, Error};

/// The present state of what a reader shows.
#[derive(Debug, Clone, Default)]
pub struct Marks {
    /// The servers that exist; a mark differs from an earlier one if the server has changed.
    pub servers: HashMap<ServerId, Mark>,
    /// For each project that was asked about, `None` being all of them: the numbers of its newest servers, at most
    /// [`NEWEST_COUNT`], the newest first.
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
