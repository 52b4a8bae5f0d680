//! Values for the fields of a message, and the headers that they become in a topic.

use std::borrow::Cow;

use crate::{
    header::Header,
    message_fields::{Cost, HeaderName, MESSAGE_KEY, MessageFields},
};

/// What is said of a message to the scheduler. A field without a value is as the message's headers say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldValues<'a> {
    /// The fair key.
    pub fair_key: Option<&'a str>,
    /// The weight of the fair key.
    pub weight: Option<u32>,
    /// The priority, 0 to 9.
    pub priority: Option<u32>,
    /// The cost.
    pub cost: Option<u32>,
    /// The throttle keys, with commas between them.
    pub throttle_keys: Option<&'a str>,
}

/// The topic names no header for a field that has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the topic names no header for {field}: see `sennit topic alter {option}`")]
pub struct MissingHeader {
    /// The field.
    pub field: &'static str,
    /// The option of `sennit topic` that names a header.
    pub option: &'static str,
}

impl<'a> FieldValues<'a> {
    /// The headers that say so in a topic with these fields, with their values.
    ///
    /// # Errors
    /// [`MissingHeader`] of the first field that has a value and no header.
    pub fn named<'n>(
        self,
        fields: Option<&'n MessageFields>,
    ) -> Result<Vec<(&'n HeaderName, Cow<'a, str>)>, MissingHeader> {
        let number = |number: Option<u32>| number.map(|number| Cow::Owned(number.to_string()));
        let cost_header = |fields: &'n MessageFields| match &fields.cost {
            Cost::Header(name) => Some(name),
            Cost::Message | Cost::Bytes => None,
        };
        // The message's own key is no header that could be set.
        let fair_key_header = |fields: &'n MessageFields| {
            fields.fair_key.as_ref().filter(|name| name.as_str() != MESSAGE_KEY)
        };
        let all = [
            (
                ("fair_key", "--fair-key"),
                fields.and_then(fair_key_header),
                self.fair_key.map(Cow::Borrowed),
            ),
            (
                ("weight", "--weight"),
                fields.and_then(|fields| fields.weight.as_ref()),
                number(self.weight),
            ),
            (
                ("priority", "--priority"),
                fields.and_then(|fields| fields.priority.as_ref()),
                number(self.priority),
            ),
            (("cost", "--cost"), fields.and_then(cost_header), number(self.cost)),
            (
                ("throttle_keys", "--throttle-keys"),
                fields.and_then(|fields| fields.throttle_keys.as_ref()),
                self.throttle_keys.map(Cow::Borrowed),
            ),
        ];
        let with_value =
            all.into_iter().filter_map(|(of, header, value)| Some((of, header, value?)));
        let named = |((field, option), header, value): (_, Option<&'n HeaderName>, _)| {
            header.map(|header| (header, value)).ok_or(MissingHeader { field, option })
        };
        with_value.map(named).collect()
    }

    /// As [`Self::named`], as headers for a message.
    ///
    /// # Errors
    /// As there.
    pub fn headers(self, fields: Option<&MessageFields>) -> Result<Vec<Header>, MissingHeader> {
        let named = self.named(fields)?.into_iter();
        Ok(named.map(|(name, value)| Header::text(name.as_str(), value.into_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> MessageFields {
        let name = |text: &str| Some(text.parse().unwrap());
        let cost = Cost::Header("price".parse().unwrap());
        MessageFields { fair_key: name("tenant"), weight: name("share"), cost, ..<_>::default() }
    }

    #[test]
    fn values_become_the_headers_that_the_topic_names() {
        let values = FieldValues {
            fair_key: Some("acme"),
            weight: Some(3),
            cost: Some(7),
            ..<_>::default()
        };
        let headers = values.headers(Some(&fields())).unwrap();
        let expected = [("tenant", "acme"), ("share", "3"), ("price", "7")];
        assert_eq!(headers, expected.map(|(name, value)| Header::text(name, value)));
        assert_eq!(FieldValues::default().headers(None), Ok(Vec::new()));
    }

    #[test]
    fn a_value_for_which_the_topic_names_no_header_is_refused_with_the_option_that_names_one() {
        let urgent = FieldValues { priority: Some(9), ..<_>::default() };
        let refused = urgent.headers(Some(&fields())).unwrap_err();
        let text = "the topic names no header for priority: see `sennit topic alter --priority`";
        assert_eq!(refused.to_string(), text);
        let key = FieldValues { fair_key: Some("acme"), ..<_>::default() };
        assert_eq!(key.headers(None).unwrap_err().field, "fair_key");
        let own_key =
            MessageFields { fair_key: Some(MESSAGE_KEY.parse().unwrap()), ..<_>::default() };
        assert_eq!(key.headers(Some(&own_key)).unwrap_err().field, "fair_key");
    }
}
