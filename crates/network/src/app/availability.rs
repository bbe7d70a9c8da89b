//! Total and allocated addresses per network, for administrators.

use kilonova_ids::NetworkId;
use kilonova_store::Tx;
use serde_json::{Number, Value, json};

use super::subnets as app;
use crate::Error;
use crate::db::networks::{self, Network};
use crate::db::subnets::{self, Subnet};
use crate::record::Body;

/// The availability of every network.
pub(crate) fn all(tx: &mut Tx<'_>) -> Result<Vec<Body>, Error> {
    let all = subnets::list(tx, None)?;
    let mut views = Vec::new();
    for network in networks::list(tx, None)? {
        let own: Vec<&Subnet> = all.iter().filter(|subnet| subnet.network == network.id).collect();
        views.push(view(tx, &network, &own)?);
    }
    Ok(views)
}

/// The availability of one network.
pub(crate) fn one(tx: &mut Tx<'_>, id: NetworkId) -> Result<Option<Body>, Error> {
    let Some(network) = networks::find(tx, id)? else { return Ok(None) };
    let own = subnets::of_network(tx, id)?;
    view(tx, &network, &own.iter().collect::<Vec<_>>()).map(Some)
}

fn view(tx: &mut Tx<'_>, network: &Network, own: &[&Subnet]) -> Result<Body, Error> {
    let (mut total, mut used, mut each) = (0_u128, 0_i64, Vec::new());
    for subnet in own {
        let record = &subnet.record;
        let pools = app::pools(record)?;
        let here = pools
            .iter()
            .map(|pool| (pool.last - pool.first).saturating_add(1))
            .fold(0_u128, u128::saturating_add);
        let taken = subnets::used(tx, record.id)?;
        total = total.saturating_add(here);
        used = used.saturating_add(taken);
        each.push(json!({"subnet_id": record.id, "subnet_name": record.text("name"),
            "cidr": record.text("cidr"), "ip_version": record.body.get("ip_version"),
            "total_ips": count(here), "used_ips": taken}));
    }
    let view = json!({"network_id": network.id, "network_name": network.text("name"),
        "project_id": network.project, "tenant_id": network.project,
        "total_ips": count(total), "used_ips": used, "subnet_ip_availability": each});
    Ok(view.as_object().cloned().unwrap_or_default())
}

/// Converts a count to JSON. An integer has at most 64 bits; a larger count becomes a floating-point
/// number.
#[allow(clippy::cast_precision_loss, reason = "a count beyond 2^64 is shown rounded")]
fn count(number: u128) -> Value {
    let exact = u64::try_from(number).ok().map(Number::from);
    exact.or_else(|| Number::from_f64(number as f64)).map_or(Value::Null, Value::Number)
}

/// Restricts a view to subnets of one IP version; `None` if no subnet has that version.
pub(crate) fn of_version(mut view: Body, version: &str) -> Option<Body> {
    let each = view.get_mut("subnet_ip_availability")?.as_array_mut()?;
    let version = version.parse::<i64>().ok()?;
    each.retain(|subnet| subnet["ip_version"].as_i64() == Some(version));
    let each = each.clone();
    if each.is_empty() {
        return None;
    }
    let used: i64 = each.iter().filter_map(|subnet| subnet["used_ips"].as_i64()).sum();
    let exact = each.iter().map(|subnet| subnet["total_ips"].as_u64().map(u128::from));
    let total = exact.sum::<Option<u128>>().map(count).or_else(|| {
        let near = each.iter().filter_map(|subnet| subnet["total_ips"].as_f64()).sum::<f64>();
        Number::from_f64(near).map(Value::Number)
    });
    view.insert("used_ips".into(), json!(used));
    view.insert("total_ips".into(), json!(total));
    Some(view)
}
