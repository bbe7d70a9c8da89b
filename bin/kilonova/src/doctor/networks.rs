//! Checks that the Neutron of the cloud answers, if it is the network service. It creates nothing
//! there.

use kilonova_compute_app::attention::Level;

use super::Report;
use super::configuration::Locations;

const AREA: &str = "networks";

pub(super) async fn examine(place: &Locations, report: &mut Report) {
    let Some(settings) = &place.settings else {
        report.skip(AREA, "not checked: the configuration has errors");
        return;
    };
    let Some(neutron) = &settings.neutron else {
        report.area(AREA, "Kilonova's own");
        return;
    };
    report.area(AREA, "in the external Neutron ([neutron])");
    let answered = match neutron.open() {
        Ok(neutron) => neutron.check().await.map_err(|e| e.to_string()),
        Err(why) => Err(why),
    };
    if let Err(why) = answered {
        let what = format!("the external Neutron cannot be used with Kilonova's own login: {why}");
        let remedy = "check [neutron], the catalog of Keystone and the roles of the login; until then servers \
                      with ports cannot be built or moved";
        report.find(AREA, Level::Error, what, remedy.to_owned());
    }
}
