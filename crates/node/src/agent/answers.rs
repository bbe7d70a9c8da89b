//! Answers questions about guests. Answering changes nothing on the host, so it does not wait for
//! operations in progress.

use std::sync::Arc;

use kilonova_node_api::{Question, Reply, ReplyBody, Topic};

use super::work::Work;

/// Answers the questions in the background.
pub(super) fn answer(work: &Arc<Work>, questions: Vec<Question>) {
    for question in questions {
        let work = Arc::clone(work);
        tokio::spawn(async move {
            let body = answer_one(&work, &question).await;
            work.link.reply(Reply { id: question.id, body }).await;
        });
    }
}

async fn answer_one(work: &Work, question: &Question) -> ReplyBody {
    let answer = match question.topic {
        Topic::Console { lines } => work
            .hypervisor
            .console(question.server)
            .await
            .map(|text| ReplyBody::Console { text: tail(&text, lines).to_owned() }),
        Topic::Diagnostics => {
            work.hypervisor.usage(question.server).await.map(ReplyBody::Diagnostics)
        }
    };
    answer.unwrap_or_else(|error| ReplyBody::Unknown { why: error.to_string() })
}

/// The last lines of a text. As in Nova, the text after the last line break counts as a line, even if it is empty.
fn tail(text: &str, lines: Option<u32>) -> &str {
    let Some(lines) = lines else { return text };
    let lines = usize::try_from(lines).unwrap_or(usize::MAX);
    match lines.checked_sub(1) {
        None => "",
        Some(skipped) => {
            text.rmatch_indices('\n').nth(skipped).map_or(text, |(at, _)| &text[at + 1..])
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
            (Some(1), ""),
            (Some(2), "c\n"),
            (Some(3), "b\nc\n"),
            (Some(9), "a\nb\nc\n"),
        ] {
            assert_eq!(tail("a\nb\nc\n", lines), end, "{lines:?}");
        }
        assert_eq!(tail("a\nb", Some(1)), "b");
        assert_eq!(tail("", Some(3)), "");
    }
}
