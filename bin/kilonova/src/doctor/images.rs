//! Checks that the image store, or the Glance of the cloud, can be used with the configured
//! credentials. It creates nothing there.

use kilonova_compute_app::attention::Level;
use kilonova_image::{StoreName, check_bucket};
use kilonova_store::Store;

use super::Report;
use super::configuration::Locations;
use crate::config::GlanceSettings;

const AREA: &str = "images";

pub(super) async fn examine(store: &Store, place: &Locations, report: &mut Report) {
    let Some(settings) = &place.settings else {
        report.skip(AREA, "not checked: the configuration has errors");
        return;
    };
    if let Some(glance) = &settings.glance {
        return examine_glance(glance, report).await;
    }
    let options = &settings.image.stores;
    let Some(bucket) = &options.s3 else {
        let folder = options.directory.clone().unwrap_or_else(|| place.state_dir.join("images"));
        report.area(AREA, format!("files in {}", folder.display()));
        return;
    };
    let name = format!("bucket {} at {}", bucket.bucket, bucket.endpoint);
    match check_bucket(store, bucket, settings.image.size_cap).await {
        Ok(true) => report.area(AREA, format!("{name} answers")),
        Ok(false) => report.area(AREA, format!("the first image creates {name}")),
        Err(error) => {
            report.area(AREA, &*name);
            let (level, use_of) = match options.default {
                StoreName::S3 => (Level::Error, "no image can be stored or booted from"),
                StoreName::File => (Level::Warning, "images in it cannot be used"),
            };
            let what = format!("{name} cannot be used: {error}");
            let remedy = format!(
                "check [glance_store] s3_store_host, the bucket, its key and the server; until then {use_of}"
            );
            report.find(AREA, level, what, remedy);
        }
    }
}

async fn examine_glance(settings: &GlanceSettings, report: &mut Report) {
    report.area(AREA, "in the external Glance ([glance])");
    let answered = match settings.open() {
        Ok(glance) => glance.check().await.map_err(|e| e.to_string()),
        Err(why) => Err(why),
    };
    if let Err(why) = answered {
        let what = format!("the external Glance cannot be used with Kilonova's own login: {why}");
        let remedy = "check [glance], the catalog of Keystone and the role of the login; until then hosts may \
                      not get images after a restart, and snapshots are not cleaned up";
        report.find(AREA, Level::Error, what, remedy.to_owned());
    }
}
