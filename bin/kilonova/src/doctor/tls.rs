//! Checks the certificate of the API, if Kilonova itself terminates TLS: as at a start, and what its
//! clients would refuse.

use kilonova_compute_app::attention::Level;
use kilonova_wire::time::zulu;

use super::Report;
use super::configuration::Locations;
use crate::serve::{CertificateProblem, examine_certificate};

const AREA: &str = "tls";

pub(super) fn examine(place: &Locations, report: &mut Report) {
    let Some(settings) = &place.settings else {
        report.skip(AREA, "not checked: the configuration has errors");
        return;
    };
    let Some(files) = &settings.front.tls else { return };
    let file = files.cert.display();
    let (until, problems) = match examine_certificate(files) {
        Ok(examined) => examined,
        Err(why) => {
            report.area(AREA, file.to_string());
            let remedy = "correct it; kilonova serve does not start with it (run doctor as the user of the \
                          service, who may read the key)";
            report.find(AREA, Level::Error, why, remedy);
            return;
        }
    };
    report.area(
        AREA,
        match until {
            Some(until) => format!("{file}, valid until {}", zulu(until)),
            None => file.to_string(),
        },
    );
    for CertificateProblem { is_refused, what, remedy } in problems {
        let level = if is_refused { Level::Error } else { Level::Warning };
        report.find(AREA, level, what, remedy);
    }
}
