//! Answers to what somebody waits to hear about a guest. They change nothing on the host, so they
//! wait for nothing that is being done to it.

use std::sync::Arc;

use kilonova_node_api::{Question, Reply, Said, Topic};

use super::work::Work;

/// Looks and answers, beside everything else.
pub(super) fn answer(work: &Arc<Work>, questions: Vec<Question>) {
    for question in questions {
        let work = Arc::clone(work);
        tokio::spawn(async move {
            let said = look(&work, &question).await;
            work.link.reply(Reply { id: question.id, said }).await;
        });
    }
}

async fn look(work: &Work, question: &Question) -> Said {
    let looked = match question.topic {
        Topic::Console { lines } => work
            .hypervisor
            .console(question.server)
            .await
            .map(|text| Said::Console { text: tail(&text, lines).to_owned() }),
        Topic::Diagnostics => work.hypervisor.usage(question.server).await.map(Said::Diagnostics),
    };
    looked.unwrap_or_else(|error| Said::Unknown { why: error.to_string() })
}

/// The last lines.
fn tail(text: &str, lines: Option<u32>) -> &str {
    let Some(lines) = lines else { return text };
    let lines = usize::try_from(lines).unwrap_or(usize::MAX);
    let body = text.strip_suffix('\n').unwrap_or(text);
    match lines.checked_sub(1) {
        None => "",
        Some(skipped) => {
            body.rmatch_indices('\n').nth(skipped).map_or(text, |(at, _)| &text[at + 1..])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::tail;

    #[test]
    fn the_end_of_a_log() {
        for (lines, end) in [
            (None, "a\nb\nc\n"),
            (Some(0), ""),
            (Some(1), "c\n"),
            (Some(2), "b\nc\n"),
            (Some(9), "a\nb\nc\n"),
        ] {
            assert_eq!(tail("a\nb\nc\n", lines), end, "{lines:?}");
        }
        assert_eq!(tail("a\nb", Some(1)), "b");
        assert_eq!(tail("", Some(3)), "");
    }
}
