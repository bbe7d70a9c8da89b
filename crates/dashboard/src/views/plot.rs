//! The usage of a resource class over time, as SVG that needs no script.

use std::fmt::Write as _;

use jiff::Timestamp;
use kilonova_wire::time::zulu;
use maud::{Markup, html};
use serde_json::Value;

use super::parts::{list, moment, text};
use crate::texts;

const WIDTH: i64 = 600;
const HEIGHT: i64 = 120;

/// A sample: time, amount in use, capacity.
type Sample = (i64, i64, i64);

/// A time, given in seconds since 1970, as pages show it.
fn time(second: i64) -> Markup {
    moment(&Timestamp::from_second(second).map(zulu).unwrap_or_default())
}

/// The plot of one class, with a sentence about its amounts.
pub(super) fn plot(usage: &Value, class: &Value) -> Markup {
    let number = |key: &str| usage[key].as_i64().unwrap_or_default();
    let (from, to, step) = (number("from"), number("to"), number("step").max(1));
    let part = |sample: &Value, place: usize| sample[place].as_i64().unwrap_or_default();
    let samples: Vec<Sample> = list(&class["samples"])
        .map(|sample| (part(sample, 0).min(to).max(from), part(sample, 1), part(sample, 2)))
        .collect();
    let top = samples.iter().map(|(_, used, capacity)| (*used).max(*capacity)).max();
    let top = top.unwrap_or_default().max(1);
    let last = samples.last().copied().unwrap_or_default();
    let most = samples.iter().map(|(_, used, _)| *used).max().unwrap_or_default();
    let name = text(class, "resource_class");
    // A class that no host offers any more appears only in older samples.
    let is_present = last.0 > to - 2 * step;
    let words = texts::plot(is_present.then_some((last.1, last.2)), most);
    html! {
        figure class="plot" {
            figcaption { strong { (name) } " " span class="quiet" { (words) } }
            div class="scale" aria-hidden="true" { span { (top) } span { "0" } }
            svg role="img" aria-label={ (name) ": " (words) } viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" {
                path class="capacity" d=(line(&samples, from, to, step, top, |(_, _, capacity)| *capacity)) {}
                path class="used" d=(line(&samples, from, to, step, top, |(_, used, _)| *used)) {}
            }
            div class="times" { (time(from)) (time(to)) }
        }
    }
}

/// The line of an amount. It is computed in tenths of a drawing unit, and broken where samples are missing.
fn line(
    samples: &[Sample],
    from: i64,
    to: i64,
    step: i64,
    top: i64,
    amount: impl Fn(&Sample) -> i64,
) -> String {
    let scaled = |value: i64, of: i64, length: i64| {
        // The memory of a large cloud, multiplied by the length, would overflow an i64.
        let scaled = i128::from(value) * i128::from(length * 10) / i128::from(of.max(1));
        i64::try_from(scaled).unwrap_or_default()
    };
    let mut path = String::new();
    let mut before: Option<i64> = None;
    for sample in samples {
        let x = scaled(sample.0 - from, to - from, WIDTH);
        // One unit is left above and below for the width of the line.
        let y = 10 + (HEIGHT - 2) * 10 - scaled(amount(sample).clamp(0, top), top, HEIGHT - 2);
        let verb = if before.is_some_and(|at| sample.0 - at <= 2 * step) { 'L' } else { 'M' };
        let end = if verb == 'M' { "h0.1" } else { "" };
        let _ = write!(path, "{verb}{}.{} {}.{}{end}", x / 10, x % 10, y / 10, y % 10);
        before = Some(sample.0);
    }
    path
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_broken_where_samples_are_missing() {
        let samples = [(0, 0, 4), (10, 4, 4), (100, 2, 4)];
        let path = line(&samples, 0, 100, 10, 4, |(_, used, _)| *used);
        assert_eq!(path, "M0.0 119.0h0.1L60.0 1.0M600.0 60.0h0.1");
    }

    #[test]
    fn amounts_of_any_size_stay_within_the_drawing() {
        let samples = [(5, i64::MAX, i64::MAX), (6, -1, 0)];
        let path = line(&samples, 0, 10, 1, i64::MAX, |(_, used, _)| *used);
        assert_eq!(path, "M300.0 1.0h0.1L360.0 119.0");
    }

    #[test]
    fn a_plot_says_its_amounts_in_words() {
        let usage = json!({"from": 0, "to": 100, "step": 10});
        let class =
            json!({"resource_class": "VGPU", "samples": [[70, 1, 8], [80, 3, 8], [90, 2, 8]]});
        let shown = plot(&usage, &class).into_string();
        assert!(shown.contains("2 of 8 in use at the last sample, at most 3"), "{shown}");
        assert!(shown.contains("role=\"img\"") && !shown.contains("style="), "{shown}");
        assert!(shown.contains("1970-01-01 00:01:40 UTC"), "{shown}");
        let gone = json!({"resource_class": "VGPU", "samples": [[70, 1, 8], [80, 3, 8]]});
        let shown = plot(&usage, &gone).into_string();
        assert!(shown.contains("not in the last samples, at most 3"), "{shown}");
        let none = plot(&usage, &json!({"resource_class": "<b>", "samples": []})).into_string();
        assert!(none.contains("&lt;b&gt;"), "{none}");
    }
}
