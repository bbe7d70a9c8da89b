//! Projects.

use serde_json::Value;

use super::{
    Fields, extras, flag, immutable, named, only_domain, only_unprotects, same_domain,
    stripped_name, text,
};
use crate::db::projects::{self, Project};
use crate::db::users;
use crate::{DOMAIN_ID, Error, Identity, new_id};

/// Maximum number of characters in a project's name.
const LONGEST: usize = 64;
const KNOWN: [&str; 10] = [
    "id",
    "name",
    "description",
    "enabled",
    "tags",
    "domain_id",
    "parent_id",
    "is_domain",
    "options",
    "links",
];

impl Identity {
    pub(crate) async fn project(&self, id: &str) -> Result<Project, Error> {
        let id = id.to_owned();
        self.read(move |tx| projects::by_id(tx, &id)?.ok_or_else(Error::not_found("project", &id)))
            .await
    }

    pub(crate) async fn projects(
        &self,
        name: Option<String>,
        enabled: Option<bool>,
        member: Option<String>,
    ) -> Result<Vec<Project>, Error> {
        self.read(move |tx| Ok(projects::list(tx, name.as_deref(), enabled, member.as_deref())?))
            .await
    }

    pub(crate) async fn create_project(&self, fields: Fields) -> Result<Project, Error> {
        let mut project = Project {
            id: new_id(),
            name: String::new(),
            description: String::new(),
            enabled: true,
            tags: Vec::new(),
            immutable: false,
            extra: Fields::new(),
        };
        // Upstream's `ProjectsResource.post` of `keystone/api/projects.py` makes this an invalid request.
        only_domain(&fields).map_err(|error| Error::Invalid(error.to_string()))?;
        apply(&mut project, &fields)?;
        named(&project.name, LONGEST)?;
        self.change(move |tx| {
            projects::insert(tx, &project).map_err(Error::taken("project", &project.name))?;
            Ok(project.clone())
        })
        .await
    }

    pub(crate) async fn update_project(&self, id: &str, fields: Fields) -> Result<Project, Error> {
        let id = id.to_owned();
        self.change(move |tx| {
            let mut project =
                projects::by_id(tx, &id)?.ok_or_else(Error::not_found("project", &id))?;
            same_domain(&fields)?;
            if project.immutable && !only_unprotects(&fields) {
                return Err(Error::Immutable("update", "project", id.clone()));
            }
            apply(&mut project, &fields)?;
            named(&project.name, LONGEST)?;
            projects::update(tx, &project).map_err(Error::taken("project", &project.name))?;
            Ok(project)
        })
        .await
    }

    /// Applies `change` to the tags and validates the result. `verb` says what it does, for the
    /// refusal of an immutable project (`keystone/resource/core.py`).
    pub(crate) async fn change_tags<F>(
        &self,
        id: &str,
        verb: &'static str,
        change: F,
    ) -> Result<Project, Error>
    where
        F: Fn(&mut Value) + Send + 'static,
    {
        let id = id.to_owned();
        self.change(move |tx| {
            let mut project =
                projects::by_id(tx, &id)?.ok_or_else(Error::not_found("project", &id))?;
            if project.immutable {
                return Err(Error::Refused(format!(
                    "Cannot {verb} project tags for {id}, project is immutable. Set \"immutable\" \
                     option to false before creating project tags."
                )));
            }
            let mut tags = Value::from(project.tags.clone());
            change(&mut tags);
            project.tags = read_tags(&tags)?;
            projects::update(tx, &project)?;
            Ok(project)
        })
        .await
    }

    /// Deletes a project, which is no longer any user's default one (`_unset_default_project` of
    /// `keystone/identity/core.py`).
    pub(crate) async fn delete_project(&self, id: &str) -> Result<(), Error> {
        let id = id.to_owned();
        self.change(move |tx| {
            let project = projects::by_id(tx, &id)?;
            if project.is_some_and(|project| project.immutable) {
                return Err(Error::Immutable("delete", "project", id.clone()));
            }
            users::unset_default_project(tx, &id)?;
            Error::unless_found(projects::delete(tx, &id)?, "project", &id)
        })
        .await
    }
}

fn apply(project: &mut Project, fields: &Fields) -> Result<(), Error> {
    if text(fields, "parent_id")?.is_some_and(|id| id != DOMAIN_ID) {
        return Err(Error::Invalid("Nested projects are not supported.".into()));
    }
    if flag(fields, "is_domain")? == Some(true) {
        return Err(Error::Invalid("There is one domain; no other can be created.".into()));
    }
    if let Some(name) = stripped_name(fields)? {
        project.name = name;
    }
    if fields.contains_key("description") {
        project.description = text(fields, "description")?.unwrap_or_default();
    }
    if let Some(enabled) = flag(fields, "enabled")? {
        project.enabled = enabled;
    }
    if let Some(tags) = fields.get("tags") {
        project.tags = read_tags(tags)?;
    }
    project.immutable = immutable(project.immutable, fields, "project")?;
    extras(&mut project.extra, fields, &KNOWN)
}

fn read_tags(tags: &Value) -> Result<Vec<String>, Error> {
    let wrong = || {
        Error::Invalid(
            "tags must be a list of at most 80 different strings of 1 to 255 characters \
             without a slash or a comma."
                .into(),
        )
    };
    let tags: Vec<String> = tags
        .as_array()
        .filter(|tags| tags.len() <= 80)
        .ok_or_else(wrong)?
        .iter()
        .map(|tag| tag.as_str().map(str::to_owned))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    let fits = |tag: &String| {
        (1..=255).contains(&tag.chars().count())
            && !tag.chars().any(|c| c == '/' || c == ',' || c.is_control())
    };
    let different = tags.iter().collect::<std::collections::BTreeSet<_>>().len() == tags.len();
    if different && tags.iter().all(fits) { Ok(tags) } else { Err(wrong()) }
}
