//! The one domain.

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use kilonova_wire::Base;
use kilonova_wire::query::Query;
use serde_json::{Value, json};

use super::{Answer, listing, ok, self_link};
use crate::{DOMAIN_ID, DOMAIN_NAME, Error, Identity};

pub(super) fn routes() -> Router<Identity> {
    Router::new()
        .route("/v3/domains", get(list))
        .route("/v3/domains/{id}", get(show))
        .route("/v3/auth/domains", get(scopes))
}

fn view(base: &Base) -> Value {
    json!({
        "id": DOMAIN_ID,
        "name": DOMAIN_NAME,
        "description": "The default domain",
        "enabled": true,
        "tags": [],
        "options": {},
        "links": self_link(base, "domains", DOMAIN_ID),
    })
}

async fn list(base: Base, query: Query) -> Answer {
    let fits = query.get("name").is_none_or(|name| name.eq_ignore_ascii_case(DOMAIN_NAME))
        && query.get("enabled").is_none_or(|enabled| enabled.eq_ignore_ascii_case("true"));
    let items = if fits { vec![view(&base)] } else { Vec::new() };
    listing(&base, "/v3/domains", "domains", items)
}

/// No token can be for a domain.
async fn scopes(base: Base) -> Answer {
    listing(&base, "/v3/auth/domains", "domains", Vec::new())
}

async fn show(base: Base, Path(id): Path<String>) -> Answer {
    if id == DOMAIN_ID {
        return ok(json!({"domain": view(&base)}));
    }
    Err(Error::NotFound("domain", id.escape_debug().to_string()).into())
}
