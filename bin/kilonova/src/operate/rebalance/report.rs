//! The result of a rebalance.

use serde_json::{Value, json};

use crate::operate::text::{of, plain};

/// A move that was requested.
#[derive(Debug, Clone)]
pub struct Done {
    /// The move in the plan.
    pub planned: Value,
    /// The number of its migration, once it has begun.
    pub migration: Option<i64>,
    /// The id of the request that its operation records.
    pub request_id: Option<String>,
    /// Why it failed or did not begin.
    pub failure: Option<String>,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All moves succeeded, or there were none.
    Done,
    /// A move failed or could not begin.
    Failed,
    /// Ctrl-C.
    Interrupted,
    /// The timeout expired.
    TimedOut,
}

/// The whole result.
#[derive(Debug, Clone)]
pub struct Report {
    /// The plan.
    pub plan: Value,
    /// The moves that were requested.
    pub moves: Vec<Done>,
    /// How it ended.
    pub end: End,
    /// For the requested flavor: how many servers fit now.
    pub fits_now: Option<u64>,
}

impl Report {
    fn is_empty(&self) -> bool {
        self.plan["moves"].as_array().is_none_or(Vec::is_empty)
    }

    /// 0 if all moves succeeded, 130 after Ctrl-C, else 1; also 1 if there were no moves.
    pub fn exit_code(&self) -> u8 {
        match self.end {
            End::Done => u8::from(self.is_empty()),
            End::Interrupted => 130,
            End::Failed | End::TimedOut => 1,
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let moves = self.moves.iter().map(|one| {
            let mut shown = one.planned.clone();
            shown["migration"] = json!(one.migration);
            shown["request_id"] = json!(one.request_id);
            shown["failure"] = json!(one.failure);
            shown
        });
        json!({
            "plan": self.plan,
            "moves": moves.collect::<Vec<_>>(),
            "done": self.end == End::Done && !self.is_empty(),
            "interrupted": self.end == End::Interrupted,
            "timed_out": self.end == End::TimedOut,
            "servers_now": self.fits_now,
        })
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut text = match self.end {
            End::Done if self.is_empty() => format!("No moves. {}\n", of(&self.plan["reason"])),
            End::Done => format!("{} server(s) moved.\n", self.moves.len()),
            End::Failed => String::new(),
            End::Interrupted => "Interrupted. A requested move continues.\n".to_owned(),
            End::TimedOut => "The timeout expired. A requested move continues.\n".to_owned(),
        };
        for one in &self.moves {
            let Some(failure) = &one.failure else { continue };
            let (name, id) = (of(&one.planned["name"]), of(&one.planned["server"]));
            text.push_str(&format!("{name} ({id}) did not move: {}\n", plain(failure)));
        }
        if let (Some(now), Some(flavor)) = (self.fits_now, self.plan["flavors"].get(0)) {
            text.push_str(&format!(
                "{} of {} fit now, {} did before.\n",
                now,
                of(&flavor["name"]),
                of(&flavor["servers_before"])
            ));
        }
        text
    }
}
