//! `PUT /servers/{id}`: name, description, host name, access addresses, disk configuration.

use axum::extract::{Path, State};
use axum::response::Response;
use kilonova_wire::time::now_micros;
use kilonova_wire::{Base, Context, Fault, JsonBody, Microversion, text};
use serde_json::Value;

use crate::db::servers::{self, Server};
use crate::{Compute, Error};

const FIELDS: &[(&str, u32)] = &[
    ("name", 1),
    ("accessIPv4", 1),
    ("accessIPv6", 1),
    ("OS-DCF:diskConfig", 1),
    ("description", 19),
    ("hostname", 90),
];

pub(super) async fn update(
    State(compute): State<Compute>,
    context: Context,
    base: Base,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Fault> {
    check(&body, version)?;
    let wish = body["server"].clone();
    let caller = context.clone();
    let server = compute
        .store
        .write(move |tx| {
            let mut server = super::find::find(tx, &caller, &id)?;
            apply(&mut server, &wish);
            server.updated_at = now_micros();
            servers::set_text(
                tx,
                server.id,
                &server.name,
                server.description.as_deref(),
                &server.spec,
                server.updated_at,
            )?;
            Ok::<_, Error>(server)
        })
        .await?;
    Ok(super::show::answer(&compute, &context, &base, version, &server))
}

fn check(body: &Value, version: Microversion) -> Result<(), Fault> {
    let fields =
        body["server"].as_object().filter(|fields| !fields.is_empty()).ok_or_else(|| {
            Fault::bad_request(
                "Invalid input for body. It must be an object `server` with what is to change.",
            )
        })?;
    for (field, value) in fields {
        let known =
            FIELDS.iter().any(|(name, minor)| name == field && version >= Microversion(2, *minor));
        if !known {
            return Err(Fault::bad_request(format!(
                "Invalid input for field/attribute server. Additional properties are not allowed \
                 ('{}' was unexpected)",
                field.escape_debug()
            )));
        }
        let nullable = field == "description";
        if !(value.is_string() || (nullable && value.is_null())) {
            return Err(Fault::bad_request(format!(
                "Invalid input for field/attribute {field}. Value: {value}. {value} is not of type \
                 'string'"
            )));
        }
        match (field.as_str(), value.as_str()) {
            ("name" | "hostname", Some(name)) => text::check_name(field, name.trim(), 255)?,
            ("description", Some(words)) if words.chars().count() > 255 => {
                return Err(Fault::bad_request(
                    "Invalid input for field/attribute description. It has more than 255 characters.",
                ));
            }
            ("OS-DCF:diskConfig", Some(kind)) if !matches!(kind, "AUTO" | "MANUAL") => {
                return Err(Fault::bad_request(
                    "Invalid input for field/attribute OS-DCF:diskConfig. It must be AUTO or MANUAL.",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn apply(server: &mut Server, wish: &Value) {
    let string = |key: &str| wish[key].as_str().map(str::to_owned);
    if let Some(name) = string("name") {
        name.trim().clone_into(&mut server.name);
    }
    if wish.get("description").is_some() {
        server.description = string("description");
    }
    if let Some(hostname) = string("hostname") {
        server.spec.hostname = hostname;
    }
    if let Some(kind) = string("OS-DCF:diskConfig") {
        server.spec.disk_config = kind;
    }
    for (index, key) in ["accessIPv4", "accessIPv6"].into_iter().enumerate() {
        if let Some(address) = string(key) {
            server.spec.access[index] = address;
        }
    }
}
