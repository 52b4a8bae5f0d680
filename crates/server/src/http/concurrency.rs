//! Which requests of a connection are worked on beside one another: those that come after something has
//! changed are to see it, and those before it are not. It knows no requests.

/// Beside which others a request is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concurrency {
    /// Beside others that change nothing.
    Reads,
    /// Beside other appends, of which those to one stream keep their order.
    Appends,
    /// Beside none.
    Alone,
}

impl Concurrency {
    /// Whether it may be worked on beside those of `other`.
    pub(super) fn goes_beside(self, other: Self) -> bool {
        self == other && self != Self::Alone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_beside_their_own_kind_unless_they_are_alone() {
        let all = [Concurrency::Reads, Concurrency::Appends, Concurrency::Alone];
        for (one, other) in all.into_iter().flat_map(|one| all.map(|other| (one, other))) {
            assert_eq!(one.goes_beside(other), one == other && one != Concurrency::Alone);
        }
    }
}
