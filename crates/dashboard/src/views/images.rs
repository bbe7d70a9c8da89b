//! The pages of images.

use kilonova_wire::query::escaped;
use maud::{Markup, html};
use serde_json::Value;

use super::kind::Kind;
use super::parts::{list as elements, moment, name, text};
use super::{csrf, frame};
use crate::api::{FORMATS, PATH, Rows};
use crate::app::session::Session;
use crate::texts;

const KIND: Kind = Kind {
    list: "/images",
    title: texts::IMAGES,
    about: "",
    none: texts::NO_IMAGES,
    columns: &[
        texts::NAME_OF,
        texts::STATUS,
        texts::VISIBILITY,
        texts::FORMAT,
        texts::SIZE,
        texts::CREATED,
    ],
    new: "/new/image",
    new_title: texts::NEW_IMAGE,
};

fn status(image: &Value) -> Markup {
    let status = text(image, "status");
    let (sign, word) = texts::image_status(status);
    let tone = match status {
        "active" => "good",
        "queued" => "warn",
        "saving" | "uploading" | "importing" => "busy",
        "killed" => "bad",
        _ => "off",
    };
    html! { span class={ "status " (tone) } { span aria-hidden="true" { (sign) } " " (word) } }
}

/// Formats an amount of data in the largest suitable unit.
fn amount(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >= 1 << shift) {
        // Tenths, computed in integers.
        Some((unit, shift)) => {
            let tenths = (u128::from(bytes) * 10) >> shift;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

fn size(image: &Value) -> Markup {
    html! {
        @match image["size"].as_u64() {
            Some(bytes) => (amount(bytes)),
            None => span class="quiet" { "–" },
        }
    }
}

/// The list of images.
pub(crate) fn list(session: &Session, rows: &Rows, creates: bool) -> Markup {
    let cells = rows.rows.iter().map(|image| {
        html! {
            th scope="row" data-label=(texts::NAME_OF) {
                a href={ (PATH) "/images/" (text(image, "id")) } { (name(image)) }
            }
            td data-label=(texts::STATUS) { (status(image)) }
            td data-label=(texts::VISIBILITY) { (texts::visibility(text(image, "visibility"))) }
            td data-label=(texts::FORMAT) { (text(image, "disk_format")) }
            td class="number" data-label=(texts::SIZE) { (size(image)) }
            td data-label=(texts::CREATED) { (moment(text(image, "created_at"))) }
        }
    });
    let last = rows.rows.last().map(|row| text(row, "id"));
    KIND.list(session, rows, creates, last, &cells.collect::<Vec<_>>())
}

/// The data of an image's page.
pub(crate) struct Shown<'a> {
    /// The session.
    pub session: &'a Session,
    /// The image.
    pub image: &'a Value,
    /// True if the user may upload its data.
    pub uploads: bool,
    /// True if the user may delete it.
    pub deletes: bool,
    /// True if the user may launch servers from it.
    pub launches: bool,
    /// Why an upload was refused.
    pub refused: Option<&'a str>,
}

/// Attributes that are not properties, or that the page shows separately.
const ATTRIBUTES: [&str; 24] = [
    "id",
    "name",
    "status",
    "size",
    "virtual_size",
    "checksum",
    "os_hash_algo",
    "os_hash_value",
    "owner",
    "visibility",
    "protected",
    "min_ram",
    "min_disk",
    "disk_format",
    "container_format",
    "os_hidden",
    "created_at",
    "updated_at",
    "tags",
    "file",
    "self",
    "schema",
    "locations",
    "direct_url",
];

/// The page of an image.
pub(crate) fn page(shown: &Shown<'_>) -> Markup {
    let image = shown.image;
    let here = format!("{PATH}/images/{}", escaped(text(image, "id")));
    let number = |key: &str| image[key].as_u64().unwrap_or_default();
    let properties = image.as_object().into_iter().flatten();
    let properties =
        properties.filter(|(key, value)| !ATTRIBUTES.contains(&key.as_str()) && value.is_string());
    let main = html! {
        div id="image" {
            (KIND.path())
            div class="head" {
                div class="title" { h1 { (name(image)) } (status(image)) }
                div class="actions" {
                    @if shown.launches {
                        a class="button primary" href={ (PATH) "/launch?image=" (escaped(text(image, "id"))) } { (texts::LAUNCH) }
                    }
                    @if shown.deletes { a class="button danger" href={ (here) "/delete" } { (texts::DELETE) "…" } }
                }
            }
            @if let Some(why) = shown.refused { p class="notice bad" role="alert" { (why) } }
            @if shown.uploads { (upload(shown.session, &here)) }
            section class="card" aria-labelledby="overview" {
                h2 id="overview" { (texts::OVERVIEW) }
                dl {
                    dt { (texts::ID) } dd { code { (text(image, "id")) } }
                    dt { (texts::VISIBILITY) } dd { (texts::visibility(text(image, "visibility"))) }
                    dt { (texts::FORMAT) } dd { (text(image, "disk_format")) }
                    dt { (texts::SIZE) } dd { (size(image)) }
                    @if !text(image, "os_hash_value").is_empty() {
                        dt { (text(image, "os_hash_algo").to_uppercase()) } dd { code { (text(image, "os_hash_value")) } }
                    }
                    @if !text(image, "checksum").is_empty() { dt { "MD5" } dd { code { (text(image, "checksum")) } } }
                    dt { (texts::MIN_DISK) } dd { (number("min_disk")) " GiB" }
                    dt { (texts::MIN_RAM) } dd { (number("min_ram")) " MiB" }
                    @if image["protected"] == true { dt { (texts::PROTECTED) } dd { (texts::YES) } }
                    dt { (texts::PROJECT) } dd { code { (text(image, "owner")) } }
                    dt { (texts::CREATED) } dd { (moment(text(image, "created_at"))) }
                    @if elements(&image["tags"]).next().is_some() {
                        dt { (texts::TAGS) }
                        dd { @for tag in elements(&image["tags"]) { span class="tag" { (tag.as_str().unwrap_or_default()) } " " } }
                    }
                    @for (key, value) in properties {
                        dt { (key) } dd { (value.as_str().unwrap_or_default()) }
                    }
                }
            }
        }
    };
    frame(name(image), Some(shown.session), &main)
}

fn upload(session: &Session, here: &str) -> Markup {
    html! {
        // The file is the last field, so that the service checks the other fields before it reads the file.
        form id="upload" class="card" method="post" enctype="multipart/form-data" action={ (here) "/file" }
            hx-post={ (here) "/file" } hx-encoding="multipart/form-data" hx-select="#image" hx-target="#image"
            hx-swap="outerHTML" hx-disabled-elt="find button" {
            h2 { (texts::UPLOAD) }
            p { (texts::UPLOAD_TEXT) }
            (csrf(session))
            label for="sum" { (texts::SUM) }
            input id="sum" name="sum" maxlength="128" autocapitalize="none" spellcheck="false" aria-describedby="sum-hint";
            p id="sum-hint" class="hint" { (texts::SUM_HINT) }
            input id="size" name="size" type="hidden";
            label for="file" { (texts::FILE) }
            input id="file" name="file" type="file" required;
            progress id="upload-progress" max="100" value="0" aria-label=(texts::UPLOAD) hidden {}
            p id="upload-lost" class="notice bad" role="alert" hidden { (texts::UPLOAD_LOST) }
            button class="primary" { (texts::UPLOAD) }
        }
    }
}

/// The form for a new image.
pub(crate) fn form(
    session: &Session,
    typed: &dyn Fn(&str) -> String,
    publishes: bool,
    refused: Option<&str>,
) -> Markup {
    let (format, visibility) = (typed("disk_format"), typed("visibility"));
    let fields = html! {
        p { (texts::NEW_IMAGE_TEXT) }
        label for="name" { (texts::NAME_OF) }
        input id="name" name="name" required maxlength="255" value=(typed("name"));
        label for="disk_format" { (texts::FORMAT) }
        select id="disk_format" name="disk_format" {
            @for one in FORMATS { option value=(one) selected[one == format] { (one) } }
        }
        label for="visibility" { (texts::VISIBILITY) }
        select id="visibility" name="visibility" {
            @for one in ["shared", "private", "community", "public"] {
                @if one != "public" || publishes {
                    option value=(one) selected[one == visibility] { (texts::visibility(one)) }
                }
            }
        }
        label for="min_disk" { (texts::MIN_DISK) " (GiB)" }
        input id="min_disk" name="min_disk" type="number" min="0" max="2147483647" value=(typed("min_disk"));
        label for="min_ram" { (texts::MIN_RAM) " (MiB)" }
        input id="min_ram" name="min_ram" type="number" min="0" max="2147483647" value=(typed("min_ram"));
    };
    KIND.form(session, refused, &fields)
}
