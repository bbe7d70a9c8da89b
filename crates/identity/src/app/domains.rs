//! The one domain.

use super::{Fields, flag, text};
use crate::db::domains;
use crate::{DOMAIN_ID, DOMAIN_NAME, Error, Identity};

/// The description until it is changed.
const DESCRIPTION: &str = "The default domain";

impl Identity {
    /// The description of the domain.
    pub(crate) async fn domain_description(&self) -> Result<String, Error> {
        let found = self.read(|tx| Ok(domains::description(tx)?)).await?;
        Ok(found.unwrap_or_else(|| DESCRIPTION.to_owned()))
    }

    /// Changes the description, the only attribute that can change, and returns it. Other attributes may be sent
    /// with their present values.
    pub(crate) async fn update_domain(&self, fields: Fields) -> Result<String, Error> {
        for (key, value) in &fields {
            let is_same = match key.as_str() {
                "description" | "links" => true,
                "id" => value == DOMAIN_ID,
                "name" => text(&fields, key)?.is_none_or(|name| name == DOMAIN_NAME),
                "enabled" => flag(&fields, key)?.is_none_or(|enabled| enabled),
                "tags" => value.as_array().is_some_and(Vec::is_empty),
                "options" => value.as_object().is_some_and(Fields::is_empty),
                _ => false,
            };
            if !is_same {
                return Err(Error::Invalid(format!(
                    "There is one domain, of which only the description can be changed; {} cannot.",
                    key.escape_debug()
                )));
            }
        }
        if fields.contains_key("description") {
            let description = text(&fields, "description")?.unwrap_or_default();
            self.change(move |tx| Ok(domains::describe(tx, &description)?)).await?;
        }
        self.domain_description().await
    }
}
