//! Atomic appends to several streams: they are located, sent to the one shard that owns them, and located again if
//! one has changed. It knows no HTTP.

use sennit_engine::{Command, StreamAnswer, StreamAppended, StreamRefusal};
use sennit_identity::Verb;

use super::{
    control_request::ControlRefusal,
    stream_offset::Identified,
    stream_request::{AppendTo, Located, StreamFailure, TogetherFailure},
    streams::{Streams, stopping, wait_for_room, wrong_answer},
};
use crate::{identity::principal::Principal, runtime::shard_answers::Answer};

impl Streams {
    /// Appends to all of these streams, or to none; says what became of each.
    pub(crate) async fn append_together(
        &self,
        principal: &Principal,
        appends: &[AppendTo],
    ) -> Result<Vec<Identified<StreamAppended>>, TogetherFailure> {
        let mut located = Vec::with_capacity(appends.len());
        for (which, each) in appends.iter().enumerate() {
            located
                .push(self.located(principal, Verb::Publish, &each.name).await.map_err(of(which))?);
        }
        let contents = appends.iter().filter_map(|each| each.append.content.as_ref());
        let batch = contents.fold((0, 0), |(messages, bytes), content| {
            (messages + u64::from(content.count()), bytes + content.bytes() as u64)
        });
        let taken = principal.take(batch).map_err(ControlRefusal::from);
        taken.map_err(|over| TogetherFailure { which: None, failure: over.into() })?;
        let failure = match self.ask_together(appends, &located).await {
            Err(TogetherFailure {
                which: Some(which),
                failure: failure @ StreamFailure::Stream(StreamRefusal::Unknown),
            }) => (which, failure),
            answer => return answer,
        };
        // What is there now may be another stream of that name, and others may be as well.
        let (which, gone) = failure;
        let mut is_other = false;
        for (which, each) in appends.iter().enumerate() {
            let now = self.located_anew(&each.name).await.map_err(of(which))?;
            is_other |= now.topic != located[which].topic;
            located[which] = now;
        }
        if !is_other {
            return Err(of(which)(gone));
        }
        self.ask_together(appends, &located).await
    }

    async fn ask_together(
        &self,
        appends: &[AppendTo],
        located: &[Located],
    ) -> Result<Vec<Identified<StreamAppended>>, TogetherFailure> {
        let shards: Vec<_> = located.iter().map(|located| self.shard(located.home)).collect();
        let Some(&shard) = shards.first() else { return Ok(Vec::new()) };
        if let Some(which) = shards.iter().position(|other| *other != shard) {
            // Those of one group are on one shard.
            return Err(of(which)(StreamRefusal::OtherGroup.into()));
        }
        let whole = |failure| TogetherFailure { which: None, failure };
        let core = &self.core;
        let contents = appends.iter().filter_map(|each| each.append.content.as_ref());
        let bytes = contents.map(|content| content.bytes() as u64).sum();
        wait_for_room(core, shard, bytes).await.map_err(|none| whole(none.into()))?;
        let each = located.iter().zip(appends);
        let all = each.map(|(located, each)| (located.place().0, each.append.clone())).collect();
        let answer = core.with(|core| {
            let (origin, answer) = core.answers.ask();
            core.command(shard, Command::AppendTogether(origin, all));
            core.handle();
            answer
        });
        match answer.await {
            Ok(Ok(Answer::Stream(StreamAnswer::AppendedTogether(became)))) => {
                let each = located.iter().zip(became);
                Ok(each.map(|(at, answer)| Identified { of: at.tag, answer }).collect())
            }
            Ok(Ok(Answer::Stream(StreamAnswer::RefusedTogether { which, refusal }))) => {
                let failure = StreamFailure::from(refusal);
                Err(of(which)(match located.get(which) {
                    Some(at) => failure.said_by(at.tag),
                    None => failure,
                }))
            }
            Ok(Ok(_)) => Err(whole(wrong_answer())),
            Ok(Err(refusal)) => Err(whole(StreamFailure::of_refusal(&refusal))),
            Err(_) => Err(whole(stopping())),
        }
    }
}

/// The failure of the append of that number.
fn of(which: usize) -> impl Fn(StreamFailure) -> TogetherFailure {
    move |failure| TogetherFailure { which: Some(which), failure }
}
