//! Lists of CPU numbers, such as `0-3,^2,8`.

use std::collections::BTreeSet;

/// A set of CPUs, of a host or of a guest.
pub type Cpus = BTreeSet<u32>;

/// A text that is not a list of CPUs, with Nova's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid {kind} expression '{}'", rule.escape_debug())]
pub struct InvalidCpus {
    /// `range`, `inclusion` or `exclusion`.
    kind: &'static str,
    rule: String,
}

/// The first and the last CPU of a range.
type Span = (u64, u64);

/// The CPUs in a list, divided at a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// The CPUs below the limit.
    pub(crate) inside: Cpus,
    /// The lowest CPU at or above the limit.
    pub(crate) outside: Option<u64>,
}

impl Named {
    /// Reads a list; `limit` bounds the work, however large the numbers are.
    pub(crate) fn parse(text: &str, limit: u32) -> Result<Self, InvalidCpus> {
        let mut named: Vec<Span> = Vec::new();
        let mut excluded: Vec<Span> = Vec::new();
        for rule in text.split(',').map(str::trim).filter(|rule| !rule.is_empty()) {
            match rule.strip_prefix('^') {
                Some(rest) => excluded.push(span(rule, rest, "exclusion")?),
                None => named.push(span(rule, rule, "inclusion")?),
            }
        }
        let (named, excluded) = (merge(named), merge(excluded));
        let within = |spans: &[Span], cpu: u64| {
            let place = spans.partition_point(|(_, last)| *last < cpu);
            spans.get(place).is_some_and(|(first, _)| *first <= cpu)
        };
        let has = |cpu: u64| within(&named, cpu) && !within(&excluded, cpu);
        let limit = u64::from(limit);
        // The lowest CPU outside starts a span, follows an excluded one, or is the limit itself.
        let starts = named.iter().map(|(first, _)| *first);
        let behind = excluded.iter().map(|(_, last)| last.saturating_add(1));
        let edges = starts.chain(behind).chain([limit]);
        let outside = edges.filter(|cpu| *cpu >= limit && has(*cpu)).min();
        let cpus = named.iter().flat_map(|(first, last)| *first..limit.min(last.saturating_add(1)));
        let cpus = cpus.filter(|cpu| !within(&excluded, *cpu));
        let inside = cpus.filter_map(|cpu| u32::try_from(cpu).ok()).collect();
        Ok(Self { inside, outside })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inside.is_empty() && self.outside.is_none()
    }
}

/// The same spans in order, without overlaps: a CPU that a text names repeatedly is counted once.
fn merge(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    for (first, last) in spans {
        match merged.last_mut() {
            Some((_, end)) if first <= *end => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    merged
}

fn span(rule: &str, text: &str, kind: &'static str) -> Result<Span, InvalidCpus> {
    let invalid = |kind| InvalidCpus { kind, rule: rule.to_owned() };
    let number = |text: &str| {
        let text = text.trim();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().unwrap_or(u64::MAX))
    };
    match text.split_once('-') {
        None => number(text).map(|cpu| (cpu, cpu)).ok_or_else(|| invalid(kind)),
        Some((first, last)) => match number(first).zip(number(last)) {
            Some((first, last)) if first <= last => Ok((first, last)),
            _ => Err(invalid("range")),
        },
    }
}

/// Reads a list of CPUs such as `0-3,^2,8`. Omits numbers from `limit` on.
///
/// # Errors
/// The first rule that is invalid.
pub fn parse_cpus(text: &str, limit: u32) -> Result<Cpus, InvalidCpus> {
    Ok(Named::parse(text, limit)?.inside)
}

/// Writes CPUs as a list: `0-1,3,8`.
pub fn format_cpus(cpus: &Cpus) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match spans.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*cpu) => *last = *cpu,
            _ => spans.push((*cpu, *cpu)),
        }
    }
    let texts = spans.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}
