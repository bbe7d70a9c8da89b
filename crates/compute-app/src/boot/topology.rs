//! Chooses the CPU topology of a guest according to the preferences and limits of its flavor and image.
//!
//! Follows Nova (`hardware.py`): of all topologies that fit, chooses the one that meets the most preferences, then the
//! one with the most sockets, then the one with the most cores. A guest without preferences and limits gets no
//! topology, and its hypervisor decides.

use std::collections::BTreeMap;

use kilonova_compute_db::servers::FlavorOf;
use kilonova_node_api::Topology;

use super::machine::number_of;

const PARTS: [&str; 3] = ["sockets", "cores", "threads"];
/// The image properties that are read.
pub(super) const PROPERTIES: [&str; 6] = [
    "hw_cpu_sockets",
    "hw_cpu_cores",
    "hw_cpu_threads",
    "hw_cpu_max_sockets",
    "hw_cpu_max_cores",
    "hw_cpu_max_threads",
];
/// A limit above the number of vCPUs of any guest.
const NO_LIMIT: i64 = 65536;

/// The topology; `None` if there is no preference and no limit.
///
/// # Errors
/// Nova's message if none fits, or if the image requests more than the flavor allows.
pub(super) fn choose(
    properties: &BTreeMap<String, String>,
    flavor: &FlavorOf,
) -> Result<Option<Topology>, String> {
    let of_flavor = |kind: &str| {
        PARTS.map(|part| number_of::<i64>(flavor.extra_specs.get(&format!("hw:cpu_{kind}{part}"))))
    };
    let of_image = |kind: &str| {
        PARTS.map(|part| {
            let number = number_of::<i64>(properties.get(&format!("hw_cpu_{kind}{part}")));
            number.filter(|number| *number > 0)
        })
    };
    let (allowed, wished) = (of_flavor("max_"), of_flavor(""));
    let (image_most, image_wished) = (of_image("max_"), of_image(""));
    for (asked, what) in [(image_most, "limits"), (image_wished, "topology")] {
        if asked.iter().zip(allowed).any(|(n, most)| most.is_some_and(|most| *n > Some(most))) {
            let (asked, allowed) = (words(asked, 0), words(allowed, NO_LIMIT));
            return Err(format!("Image vCPU {what} {asked} exceeds permitted {allowed}"));
        }
    }
    let most = or(image_most, allowed);
    let wanted = or(image_wished, wished);
    if flavor.vcpus < 1 || most.iter().chain(&wanted).all(Option::is_none) {
        return Ok(None);
    }
    let fits = all(flavor.vcpus)
        .filter(|parts| parts.iter().zip(most).all(|(n, most)| most.is_none_or(|most| *n <= most)));
    let best = fits.max_by_key(|parts| {
        let met = parts.iter().zip(wanted).filter(|(n, requested)| Some(**n) == *requested).count();
        (met, parts[0], parts[1])
    });
    let Some([sockets, cores, threads]) = best else {
        return Err(format!(
            "Requested vCPU limits {} are impossible to satisfy for vcpus count {}",
            words(most, NO_LIMIT),
            flavor.vcpus
        ));
    };
    Ok(Some(Topology { sockets, cores, threads }))
}

fn or(first: [Option<i64>; 3], second: [Option<i64>; 3]) -> [Option<i64>; 3] {
    [first[0].or(second[0]), first[1].or(second[1]), first[2].or(second[2])]
}

fn words(parts: [Option<i64>; 3], none: i64) -> String {
    parts.map(|part| part.unwrap_or(none).to_string()).join(":")
}

/// All topologies with this number of vCPUs.
fn all(vcpus: i64) -> impl Iterator<Item = [i64; 3]> {
    let divisors = move |n: i64| (1..=n).filter(move |part| n % part == 0);
    divisors(vcpus).flat_map(move |sockets| {
        let left = vcpus / sockets;
        divisors(left).map(move |cores| [sockets, cores, left / cores])
    })
}
