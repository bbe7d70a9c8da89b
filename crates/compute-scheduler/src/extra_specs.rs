//! The operators of extra specs and image properties (Nova's `extra_specs_ops`): `>= 4`, `s== kvm`,
//! `<in> avx`, `<or> a <or> b`, or plain text.

/// True if a host's value satisfies a requirement.
pub fn satisfies(has: &str, asked: &str) -> bool {
    let asked = asked.trim();
    let (operator, rest) = asked.split_once(char::is_whitespace).unwrap_or((asked, ""));
    let rest = rest.trim();
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let compare = |fits: fn(f64, f64) -> bool| match (number(has), number(rest)) {
        (Some(has), Some(asked)) => fits(has, asked),
        _ => false,
    };
    match operator {
        "=" | ">=" => compare(|has, asked| has >= asked),
        "==" => compare(|has, asked| has == asked),
        "!=" => compare(|has, asked| has != asked),
        "<=" => compare(|has, asked| has <= asked),
        "s==" => has == rest,
        "s!=" => has != rest,
        "s<" => has < rest,
        "s<=" => has <= rest,
        "s>" => has > rest,
        "s>=" => has >= rest,
        "<in>" => has.contains(rest),
        "<all-in>" => rest.split_whitespace().all(|word| has.contains(word)),
        "<or>" => rest.split("<or>").any(|word| word.trim() == has),
        _ => has == asked,
    }
}

#[cfg(test)]
mod tests {
    use super::satisfies;

    #[test]
    fn each_operator_compares_as_upstream_does() {
        for (has, asked, fits) in [
            ("4", ">= 4", true),
            ("3", ">= 4", false),
            ("5", "= 4", true),
            ("4", "== 4.0", true),
            ("4", "!= 4", false),
            ("3", "<= 4", true),
            ("kvm", "s== kvm", true),
            ("kvm", "s!= kvm", false),
            ("abc", "s< abd", true),
            ("abc", "s> abd", false),
            ("avx sse", "<in> avx", true),
            ("avx sse", "<all-in> avx sse", true),
            ("avx sse", "<all-in> avx mmx", false),
            ("b", "<or> a <or> b", true),
            ("c", "<or> a <or> b", false),
            ("4", "4", true),
            ("many", ">= 4", false),
            (">=", ">=", false),
        ] {
            assert_eq!(satisfies(has, asked), fits, "{has:?} {asked:?}");
        }
    }
}
