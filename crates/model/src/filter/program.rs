//! A filter in flat form: a list of tests. Each test names the next one for each of its results, so that evaluation
//! needs neither a stack nor recursion.

use super::tree::{Check, Field, Tree};
use crate::message::MessageView;

/// A test and its successors: an index of the program, [`YES`] or [`NO`].
#[derive(Clone, Debug)]
pub(super) struct Test {
    field: Field,
    check: Check,
    if_holds: u16,
    if_not: u16,
}

/// The message passes.
const YES: u16 = u16::MAX;
/// The message does not pass.
const NO: u16 = u16::MAX - 1;

impl Test {
    /// Returns whether a value of the field passes the check. An absent header and an empty key
    /// have no value.
    fn holds(&self, message: &MessageView<'_>) -> bool {
        match &self.field {
            Field::Key => !message.key().is_empty() && self.check.holds(message.key()),
            Field::Header(name) => message
                .headers()
                .map_while(Result::ok)
                .any(|(held, _, value)| *held == **name && self.check.holds(value)),
        }
    }
}

/// The tests, at least one. Evaluation begins with the first; each names only later ones.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) tests: Vec<Test>,
    /// How often the tests may examine each byte of key and headers.
    pub(super) weight: u64,
}

impl Program {
    pub(super) fn of(tree: Tree) -> Self {
        let mut program = Self { tests: Vec::new(), weight: 0 };
        program.add(tree, YES, NO);
        program.weight = program.tests.iter().map(|test| 1 + test.check.weight()).sum();
        program
    }

    /// Adds the tests of `tree`. Recurses no deeper than the parser did.
    fn add(&mut self, tree: Tree, if_holds: u16, if_not: u16) {
        match tree {
            Tree::Test(field, check) => self.tests.push(Test { field, check, if_holds, if_not }),
            Tree::Not(tree) => self.add(*tree, if_not, if_holds),
            Tree::All(trees) => {
                self.add_each(
                    trees,
                    |next, last| {
                        if last { (if_holds, if_not) } else { (next, if_not) }
                    },
                )
            }
            Tree::Any(trees) => {
                self.add_each(
                    trees,
                    |next, last| {
                        if last { (if_holds, if_not) } else { (if_holds, next) }
                    },
                )
            }
        }
    }

    fn add_each(&mut self, trees: Vec<Tree>, targets: impl Fn(u16, bool) -> (u16, u16)) {
        let count = trees.len();
        for (index, tree) in trees.into_iter().enumerate() {
            let next = self.tests.len() + test_count(&tree);
            let next = u16::try_from(next).expect("FILTER_TESTS_MAX is far below");
            let (if_holds, if_not) = targets(next, index + 1 == count);
            self.add(tree, if_holds, if_not);
        }
    }

    pub(super) fn matches(&self, message: &MessageView<'_>) -> bool {
        let mut at = 0;
        loop {
            let test = &self.tests[usize::from(at)];
            at = if test.holds(message) { test.if_holds } else { test.if_not };
            if at >= NO {
                return at == YES;
            }
        }
    }
}

fn test_count(tree: &Tree) -> usize {
    match tree {
        Tree::Test(..) => 1,
        Tree::Not(tree) => test_count(tree),
        Tree::All(trees) | Tree::Any(trees) => trees.iter().map(test_count).sum(),
    }
}
