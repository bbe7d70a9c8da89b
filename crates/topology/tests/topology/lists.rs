//! Lists of CPUs.

use kilonova_topology::{Cpus, format_cpus, parse_cpus};

#[test]
fn lists_name_and_exclude_cpus() {
    let cases: &[(&str, &[u32])] = &[
        ("1", &[1]),
        ("0,1", &[0, 1]),
        (" , 1, 3 ,2", &[1, 2, 3]),
        ("1-4", &[1, 2, 3, 4]),
        ("1-4,^2", &[1, 3, 4]),
        ("^2,1-4", &[1, 3, 4]),
        ("0-5,^1-3", &[0, 4, 5]),
        ("1 - 3 ,^ 2", &[1, 3]),
        ("62-999999999999", &[62, 63]),
        ("0-2,1-4,4,^1,^1-2,^9-999999999999", &[0, 3, 4]),
        ("^0", &[]),
        ("", &[]),
    ];
    for (text, expected) in cases {
        let found = parse_cpus(text, 64).expect("the list is valid");
        assert_eq!(found, expected.iter().copied().collect::<Cpus>(), "{text:?}");
    }
}

#[test]
fn other_texts_are_refused_in_novas_words() {
    for (text, words) in [
        ("a", "Invalid inclusion expression 'a'"),
        ("1,^b", "Invalid exclusion expression '^b'"),
        ("1-", "Invalid range expression '1-'"),
        ("-1", "Invalid range expression '-1'"),
        ("4-1", "Invalid range expression '4-1'"),
        ("1-3-5", "Invalid range expression '1-3-5'"),
        ("1 2", "Invalid inclusion expression '1 2'"),
        ("^^1", "Invalid exclusion expression '^^1'"),
        ("+1", "Invalid inclusion expression '+1'"),
    ] {
        let refused = parse_cpus(text, 64).expect_err("the list is invalid");
        assert_eq!(refused.to_string(), words);
    }
}

#[test]
fn cpus_are_written_as_ranges() {
    for text in ["", "0", "0-1", "0-3,5,7-9", "4294967295"] {
        let cpus = match text {
            "4294967295" => Cpus::from([u32::MAX]),
            _ => parse_cpus(text, 64).expect("the list is valid"),
        };
        assert_eq!(format_cpus(&cpus), text);
    }
}

/// The cost depends on the length of the text and on the limit, not on their product.
#[test]
fn repeated_ranges_cost_nothing() {
    let text = "0-65535,^0-65534,".repeat(50_000);
    let begin = std::time::Instant::now();
    assert_eq!(parse_cpus(&text, 1 << 16), Ok(Cpus::from([65535])));
    assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
}
