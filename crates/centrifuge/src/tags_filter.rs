//! A filter of a subscription by the tags of publications, which the server is asked to apply.

message! {
    /// A test, or several of them joined.
    pub struct TagsFilter {
        /// `and`, `or`, `not` of `nodes`; empty for a test.
        1 "op" operation: String,
        /// Of a test: the tag it looks at.
        2 "key" key: String,
        /// Of a test: `eq`, `neq`, `in`, `nin`, `ex`, `nex`, `sw`, `ew`, `ct`, `lt`, `lte`, `gt` or `gte`.
        3 "cmp" comparison: String,
        /// Of a test: what the tag is compared with.
        4 "val" value: String,
        /// Of the tests `in` and `nin`.
        5 "vals" values: Vec<String>,
        /// What is joined.
        6 "nodes" nodes: Vec<TagsFilter>,
    }
}
