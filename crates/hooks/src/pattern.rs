//! The patterns of Lua's string functions, matched with a budget: a pattern that goes back and forth for ever is ended,
//! and none can exhaust the stack. It knows no script.

mod parse;

use sennit_model::limits::HOOK_PATTERN_BYTES_MAX;

pub(crate) use self::parse::Pattern;
use self::parse::{Item, Repeat};
use crate::budget::{Budget, Exceeded};

/// Most captures of a pattern.
const CAPTURES_MAX: usize = 32;

/// Steps of the matcher that cost as much as an instruction of a script.
const STEPS_PER_INSTRUCTION: u64 = 4;

/// Why there is no match, and cannot be said to be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternError {
    #[error("malformed pattern: {0}")]
    Malformed(&'static str),
    #[error("HOOK_PATTERN_BYTES_MAX is {HOOK_PATTERN_BYTES_MAX}: the pattern is longer")]
    TooLong,
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
}

/// A capture of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// From where to before where.
    Text { start: usize, end: usize },
    /// A place in the subject.
    Position(usize),
    /// Begun, and not ended yet.
    Open { start: usize },
}

/// Where a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// In their order; none if the pattern has none.
    pub(crate) captures: Vec<Capture>,
}

/// Finds the first match at `from` or behind it that does not end at `not_at_end`.
pub(crate) fn find(
    pattern: &Pattern,
    subject: &[u8],
    from: usize,
    not_at_end: Option<usize>,
    budget: &Budget,
) -> Result<Option<Match>, PatternError> {
    let mut matcher =
        Matcher { items: &pattern.items, subject, captures: Vec::new(), steps: 0, budget };
    let mut found = None;
    for start in from..=subject.len() {
        matcher.captures.clear();
        let end = matcher.run(start, 0)?;
        if let Some(end) = end.filter(|end| Some(*end) != not_at_end) {
            let captures = std::mem::take(&mut matcher.captures);
            found = Some(Match { start, end, captures });
            break;
        }
        if pattern.anchored {
            break;
        }
    }
    budget.charge(matcher.steps / STEPS_PER_INSTRUCTION)?;
    Ok(found)
}

struct Matcher<'a> {
    items: &'a [Item],
    subject: &'a [u8],
    captures: Vec<Capture>,
    /// Steps that are not charged yet.
    steps: u64,
    budget: &'a Budget,
}

impl Matcher<'_> {
    fn takes(&mut self, steps: u64) -> Result<(), PatternError> {
        self.steps += steps;
        if self.steps >= 256 {
            self.budget.charge(self.steps / STEPS_PER_INSTRUCTION)?;
            self.steps = 0;
        }
        Ok(())
    }

    /// Matches the items from number `at` on, at a place of the subject; returns where the match ends. It is as deep in
    /// itself as there are items, at most.
    fn run(&mut self, mut place: usize, mut at: usize) -> Result<Option<usize>, PatternError> {
        loop {
            self.takes(1)?;
            let items = self.items;
            let Some(item) = items.get(at) else { return Ok(Some(place)) };
            at += 1;
            match item {
                Item::End if place == self.subject.len() => return Ok(Some(place)),
                Item::End => return Ok(None),
                Item::Open => return self.captures_one(Capture::Open { start: place }, place, at),
                Item::Position => return self.captures_one(Capture::Position(place), place, at),
                Item::Close => return self.closes(place, at),
                Item::Again(number) => match self.again(*number, place)? {
                    Some(end) => place = end,
                    None => return Ok(None),
                },
                Item::Balanced(open, close) => match self.balanced(*open, *close, place)? {
                    Some(end) => place = end,
                    None => return Ok(None),
                },
                Item::Frontier(set) => {
                    let before = place.checked_sub(1).map_or(0, |before| self.subject[before]);
                    let here = self.subject.get(place).copied().unwrap_or(0);
                    if set.has(before) || !set.has(here) {
                        return Ok(None);
                    }
                }
                Item::One(set, repeat) => {
                    let is_in =
                        |place: usize| self.subject.get(place).is_some_and(|byte| set.has(*byte));
                    match repeat {
                        Repeat::Once if is_in(place) => place += 1,
                        Repeat::Once => return Ok(None),
                        Repeat::Maybe if is_in(place) => {
                            if let Some(end) = self.run(place + 1, at)? {
                                return Ok(Some(end));
                            }
                        }
                        Repeat::Maybe => {}
                        Repeat::Most(least) => {
                            let rest = &self.subject[place..];
                            let most = rest.iter().take_while(|byte| set.has(**byte)).count();
                            self.takes(most as u64)?;
                            for count in (*least..=most).rev() {
                                if let Some(end) = self.run(place + count, at)? {
                                    return Ok(Some(end));
                                }
                            }
                            return Ok(None);
                        }
                        Repeat::Least => loop {
                            if let Some(end) = self.run(place, at)? {
                                return Ok(Some(end));
                            }
                            if !self.subject.get(place).is_some_and(|byte| set.has(*byte)) {
                                return Ok(None);
                            }
                            place += 1;
                        },
                    }
                }
            }
        }
    }

    fn captures_one(
        &mut self,
        capture: Capture,
        place: usize,
        at: usize,
    ) -> Result<Option<usize>, PatternError> {
        if self.captures.len() == CAPTURES_MAX {
            return Err(PatternError::Malformed("too many captures"));
        }
        let count = self.captures.len();
        self.captures.push(capture);
        let end = self.run(place, at)?;
        if end.is_none() {
            self.captures.truncate(count);
        }
        Ok(end)
    }

    fn closes(&mut self, place: usize, at: usize) -> Result<Option<usize>, PatternError> {
        let open = self.captures.iter().rposition(|held| matches!(held, Capture::Open { .. }));
        let Some(number) = open else { return Err(PatternError::Malformed("unexpected )")) };
        let held = self.captures[number];
        let Capture::Open { start } = held else { return Ok(None) };
        self.captures[number] = Capture::Text { start, end: place };
        let end = self.run(place, at)?;
        if end.is_none() {
            self.captures[number] = held;
        }
        Ok(end)
    }

    /// Where the text of an earlier capture ends if it comes again.
    fn again(&mut self, number: usize, place: usize) -> Result<Option<usize>, PatternError> {
        let Some(Capture::Text { start, end }) = self.captures.get(number).copied() else {
            return Err(PatternError::Malformed("%1 to %9 mean captures that have ended"));
        };
        self.takes((end - start) as u64)?;
        let is_same = self.subject[place..].starts_with(&self.subject[start..end]);
        Ok(is_same.then_some(place + end - start))
    }

    fn balanced(
        &mut self,
        open: u8,
        close: u8,
        place: usize,
    ) -> Result<Option<usize>, PatternError> {
        if self.subject.get(place) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for (more, &byte) in self.subject[place + 1..].iter().enumerate() {
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    self.takes(more as u64)?;
                    return Ok(Some(place + more + 2));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        self.takes((self.subject.len() - place) as u64)?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
