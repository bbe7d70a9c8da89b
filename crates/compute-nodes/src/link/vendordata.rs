//! Gets the vendor data of a guest from the operator's services. A host gets vendor data only for
//! guests in its documents, and never learns the addresses or credentials of the services.

use kilonova_compute_app::{Compute, Error, batch};
use kilonova_compute_db::{documents, fleet, servers};
use kilonova_ids::HostName;
use kilonova_node_api::{Desired, Refusal, VendordataAnswer, VendordataRequest};
use kilonova_store::Tx;

use super::unavailable;

pub(super) async fn vendordata(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    request: VendordataRequest,
) -> Result<VendordataAnswer, Refusal> {
    let (host, id) = (host.to_owned(), request.server);
    let read = move |tx: &mut Tx<'_>| {
        batch::check_session(&host, fleet::epoch(tx, &host)?, epoch)?;
        let document = documents::get(tx, &host, id)?;
        match document {
            Some(one) if matches!(one.desired, Desired::Present(_)) => Ok(servers::find(tx, id)?),
            _ => Ok::<_, Error>(None),
        }
    };
    let Some(server) = compute.store.read(read).await.map_err(unavailable)? else {
        return Ok(VendordataAnswer::NoServer);
    };
    Ok(match &compute.vendordata {
        None => VendordataAnswer::Are { answers: Default::default() },
        Some(services) => match services.ask(&server).await {
            Ok(answers) => VendordataAnswer::Are { answers },
            Err(_) => VendordataAnswer::Failed,
        },
    })
}
