//! Key pairs.

use serde_json::json;

use crate::compute::api::{ALL, Api};

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICOOlwZDdlOAVgqZUQRKhJs88TcgcNr3xUDvGEasT0v3 a@b";

pub async fn row(api: Api<'_>) {
    let name = format!("k{}", api.minor);
    let mut key = json!({"name": name, "public_key": KEY});
    if api.minor >= 2 {
        key["type"] = json!("ssh");
    }
    let mut whose = String::new();
    if api.minor >= 10 {
        key["user_id"] = json!("admin");
        whose = "?user_id=admin".into();
    }
    let made = if api.minor >= 2 { 201 } else { 200 };
    api.send("POST /os-keypairs", json!({"keypair": key}), ALL, made).await;
    api.ask(&format!("GET /os-keypairs/{name}{whose}"), ALL, 200).await;
    let page = if api.minor >= 35 { "?limit=1" } else { "" };
    api.ask(&format!("GET /os-keypairs{page}"), ALL, 200).await;
    let gone = if api.minor >= 2 { 204 } else { 202 };
    api.ask(&format!("DELETE /os-keypairs/{name}{whose}"), ALL, gone).await;
}
