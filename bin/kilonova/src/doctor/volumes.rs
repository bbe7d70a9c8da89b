//! Checks that the Cinder of the cloud answers with Kilonova's own login. It creates nothing there.

use kilonova_compute_app::attention::Level;

use super::Report;
use super::configuration::Locations;

const AREA: &str = "volumes";

pub(super) async fn examine(place: &Locations, report: &mut Report) {
    let Some(settings) = place.settings.as_ref().and_then(|settings| settings.cinder.as_ref())
    else {
        return;
    };
    report.area(AREA, "in the external Cinder ([cinder])");
    let answered = match settings.open() {
        Ok(volumes) => volumes.check().await.map_err(|e| e.to_string()),
        Err(why) => Err(why),
    };
    if let Err(why) = answered {
        let what = format!("the external Cinder cannot be used with Kilonova's own login: {why}");
        let remedy = "check [cinder], [service_user], the catalog of Keystone and the role of the login; until \
                      then volumes are not attached or detached after a restart";
        report.find(AREA, Level::Error, what, remedy.to_owned());
    }
}
