//! The headers from which the broker takes what its scheduler has to know of a message. It knows no scheduler.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use crate::{
    config_error::ConfigError,
    limits::{
        COST_MAX, DURATION_MAX, FAIR_KEY_BYTES_MAX, FIELD_NAME_BYTES_MAX, THROTTLE_KEYS_MAX,
        WEIGHT_MAX,
    },
    message::MessageView,
};

/// The name of a header, 1 to [`FIELD_NAME_BYTES_MAX`] bytes. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeaderName(Arc<str>);

impl HeaderName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HeaderName {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let is_name = |text: &str| {
            (1..=FIELD_NAME_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control)
        };
        if !is_name(text) {
            let allowed = format!("1 to {FIELD_NAME_BYTES_MAX} bytes of text");
            return Err(ConfigError { field: "name of a header", value: text.into(), allowed });
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The part of its key's share that a message uses up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cost {
    /// 1, whatever the message.
    #[default]
    Message,
    /// 1 for each KiB of it that is begun.
    Bytes,
    /// The number in a header, 1 to [`COST_MAX`]; 1 without one.
    Header(HeaderName),
}

/// How urgent a message is, 0 to [`Priority::MAX`]. A higher number goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The highest.
    pub const MAX: Self = Self(9);
    /// The priority of a message that names none.
    pub const DEFAULT: Self = Self(4);
    /// How many there are.
    pub const COUNT: usize = Self::MAX.0 as usize + 1;

    /// The priority of this number; the highest for a higher one.
    #[must_use]
    pub fn of(number: u64) -> Self {
        Self(u8::try_from(number).unwrap_or(u8::MAX).min(Self::MAX.0))
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }
}

/// As the name of the header of the fair key: the message's own key, if it is text. A header cannot have this name
/// for a field.
pub const MESSAGE_KEY: &str = ":key";

/// The headers from which the fields of a message are taken. A value that is not what its field needs counts
/// as none: a publisher's mistake costs its own message its place, and nobody else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MessageFields {
    /// The fair key: messages of one key wait for each other, those of other keys take turns with them.
    pub fair_key: Option<HeaderName>,
    /// The share of the message's fair key among others: a number, 1 to [`WEIGHT_MAX`].
    pub weight: Option<HeaderName>,
    /// The priority: a number, 0 to 9.
    pub priority: Option<HeaderName>,
    /// The throttle keys, separated by commas.
    pub throttle_keys: Option<HeaderName>,
    /// The delay in milliseconds, of a message that has none of its own.
    pub delay: Option<HeaderName>,
    /// The cost of a message.
    pub cost: Cost,
}

/// What a scheduler has to know of a message before it is delivered: messages with the same are alike to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// The fair key; empty where a message has none.
    pub fair_key: Box<str>,
    /// The weight of the key, as this message says it.
    pub weight: u32,
    /// The priority.
    pub priority: Priority,
    /// The throttle keys, sorted, each once.
    pub throttle_keys: Box<[Box<str>]>,
}

/// The class of a message, as its headers say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassRef<'a> {
    /// As [`Class::fair_key`].
    pub fair_key: &'a str,
    /// As [`Class::weight`].
    pub weight: u32,
    /// As [`Class::priority`].
    pub priority: Priority,
    throttle_keys: [&'a str; THROTTLE_KEYS_MAX],
}

impl<'a> ClassRef<'a> {
    /// The throttle keys, sorted, each once.
    pub fn throttle_keys(&self) -> impl Iterator<Item = &'a str> {
        self.throttle_keys.into_iter().take_while(|key| !key.is_empty())
    }

    /// The same with memory of its own.
    #[must_use]
    pub fn to_class(&self) -> Class {
        Class {
            fair_key: self.fair_key.into(),
            weight: self.weight,
            priority: self.priority,
            throttle_keys: self.throttle_keys().map(Box::from).collect(),
        }
    }
}

impl Default for ClassRef<'_> {
    fn default() -> Self {
        let (weight, priority) = (1, Priority::DEFAULT);
        Self { fair_key: "", weight, priority, throttle_keys: [""; THROTTLE_KEYS_MAX] }
    }
}

impl<'a> From<&'a Class> for ClassRef<'a> {
    fn from(class: &'a Class) -> Self {
        let mut throttle_keys = [""; THROTTLE_KEYS_MAX];
        for (place, key) in throttle_keys.iter_mut().zip(&class.throttle_keys) {
            *place = key;
        }
        let Class { fair_key, weight, priority, .. } = class;
        Self { fair_key, weight: *weight, priority: *priority, throttle_keys }
    }
}

impl Default for Class {
    fn default() -> Self {
        Self {
            fair_key: "".into(),
            weight: 1,
            priority: Priority::DEFAULT,
            throttle_keys: Box::default(),
        }
    }
}

impl MessageFields {
    /// Checks every field.
    ///
    /// # Errors
    /// There is no field, so that the configuration should have none.
    pub fn check(&self) -> Result<(), ConfigError> {
        if *self == Self::default() {
            let (value, allowed) = ("empty".into(), "at least one header, or none at all".into());
            return Err(ConfigError { field: "fields", value, allowed });
        }
        Ok(())
    }

    /// These fields as a topic has them: `None` without a field.
    #[must_use]
    pub fn if_any(self) -> Option<Arc<Self>> {
        (self != Self::default()).then(|| Arc::new(self))
    }

    /// Whether messages differ to a scheduler.
    #[must_use]
    pub fn has_classes(&self) -> bool {
        let Self { fair_key, weight, priority, throttle_keys, delay: _, cost: _ } = self;
        [fair_key, weight, priority, throttle_keys].into_iter().any(Option::is_some)
    }

    /// The class of a message. Costs a step for each of its headers.
    #[must_use]
    pub fn class<'a>(&self, message: &MessageView<'a>) -> ClassRef<'a> {
        let mut class = ClassRef::default();
        if self.fair_key.as_ref().is_some_and(|name| name.as_str() == MESSAGE_KEY) {
            let key = std::str::from_utf8(message.key()).unwrap_or_default();
            class.fair_key = cut(key, FAIR_KEY_BYTES_MAX);
        }
        if message.encoded_headers().is_empty() {
            return class;
        }
        for (name, _, value) in message.headers().map_while(Result::ok) {
            let Ok(value) = std::str::from_utf8(value) else { continue };
            if is(&self.fair_key, name) && name != MESSAGE_KEY {
                class.fair_key = cut(value, FAIR_KEY_BYTES_MAX);
            }
            if is(&self.weight, name)
                && let Ok(weight) = value.parse::<u32>()
                && weight > 0
            {
                class.weight = weight.min(WEIGHT_MAX);
            }
            if is(&self.priority, name)
                && let Ok(priority) = value.parse()
            {
                class.priority = Priority::of(priority);
            }
            if is(&self.throttle_keys, name) {
                class.throttle_keys = throttle_keys(value);
            }
        }
        class
    }

    /// The delay that the header says. Costs a step for each of the message's headers.
    #[must_use]
    pub fn delay(&self, message: &MessageView<'_>) -> Option<Duration> {
        let delay_ms = number(message, self.delay.as_ref()?)?;
        Some(Duration::from_millis(delay_ms).min(DURATION_MAX)).filter(|delay| !delay.is_zero())
    }

    /// The cost of a message, 1 or more.
    #[must_use]
    pub fn cost(&self, message: &MessageView<'_>) -> u32 {
        match &self.cost {
            Cost::Message => 1,
            Cost::Bytes => {
                u32::try_from(message.encoded().len().div_ceil(1024)).unwrap_or(u32::MAX).max(1)
            }
            Cost::Header(name) => {
                let cost = number(message, name).unwrap_or(1).max(1);
                u32::try_from(cost).unwrap_or(u32::MAX).min(COST_MAX)
            }
        }
    }
}

/// As in `fair_key=tenant, weight=plan-weight`.
impl fmt::Display for MessageFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (field, name) in [
            ("fair_key", &self.fair_key),
            ("weight", &self.weight),
            ("priority", &self.priority),
            ("throttle_keys", &self.throttle_keys),
            ("delay", &self.delay),
        ] {
            if let Some(name) = name {
                write!(f, "{separator}{field}={name}")?;
                separator = ", ";
            }
        }
        match &self.cost {
            Cost::Message => Ok(()),
            Cost::Bytes => write!(f, "{separator}cost in bytes"),
            Cost::Header(name) => write!(f, "{separator}cost={name}"),
        }
    }
}

fn is(field: &Option<HeaderName>, name: &str) -> bool {
    field.as_ref().is_some_and(|field| field.as_str() == name)
}

/// The number in the first header of this name.
fn number(message: &MessageView<'_>, name: &HeaderName) -> Option<u64> {
    let mut headers = message.headers().map_while(Result::ok);
    let (_, _, value) = headers.find(|(held, ..)| *held == name.as_str())?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The longest front of `text` of at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let end = (0..=bytes_max).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

fn throttle_keys(value: &str) -> [&str; THROTTLE_KEYS_MAX] {
    let is_key = |key: &&str| !key.is_empty() && !key.contains(char::is_control);
    let named = value.split(',').map(str::trim).filter(is_key);
    let mut keys = [""; THROTTLE_KEYS_MAX];
    let mut count = 0;
    for key in named.map(|key| cut(key, FAIR_KEY_BYTES_MAX)) {
        if count < keys.len() && !keys[..count].contains(&key) {
            keys[count] = key;
            count += 1;
        }
    }
    keys[..count].sort_unstable();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Header, Message, batch::BatchBuilder};

    fn batch(headers: Vec<Header>) -> Batch {
        let mut builder = BatchBuilder::default();
        builder.push(&Message { headers, ..Message::new("x") }).unwrap();
        builder.take().unwrap()
    }

    fn fields() -> MessageFields {
        let name = |text: &str| Some(text.parse().unwrap());
        MessageFields {
            fair_key: name("tenant"),
            weight: name("weight"),
            priority: name("urgency"),
            throttle_keys: name("limits"),
            delay: name("delay"),
            cost: Cost::Header("cost".parse().unwrap()),
        }
    }

    #[test]
    fn fields_are_taken_from_the_headers_that_the_topic_names() {
        let batch = batch(vec![
            Header::text("tenant", "acme"),
            Header::text("weight", "3"),
            Header::text("urgency", "12"),
            Header::text("limits", "smtp, acme,smtp,"),
            Header::text("delay", "1500"),
            Header::text("cost", "7"),
        ]);
        let message = batch.messages().next().unwrap();
        let class = fields().class(&message);
        let keys: Vec<&str> = class.throttle_keys().collect();
        assert_eq!((class.fair_key, class.weight, keys), ("acme", 3, vec!["acme", "smtp"]));
        assert_eq!(ClassRef::from(&class.to_class()), class);
        assert_eq!(class.priority, Priority::MAX);
        assert_eq!(fields().delay(&message), Some(Duration::from_millis(1500)));
        assert_eq!(fields().cost(&message), 7);
        let of_nothing = MessageFields::default();
        assert_eq!(of_nothing.class(&message), ClassRef::default());
        assert_eq!((of_nothing.delay(&message), of_nothing.cost(&message)), (None, 1));
    }

    #[test]
    fn a_value_that_is_not_what_its_field_needs_counts_as_none() {
        let long = "\u{e4}".repeat(FAIR_KEY_BYTES_MAX);
        let batch = batch(vec![
            Header::text("tenant", long),
            Header::text("weight", "0"),
            Header::text("urgency", "high"),
            Header::text("delay", "-1"),
            Header::text("cost", ""),
        ]);
        let message = batch.messages().next().unwrap();
        let class = fields().class(&message);
        assert_eq!(class.fair_key.len(), FAIR_KEY_BYTES_MAX);
        assert_eq!((class.weight, class.priority), (1, Priority::DEFAULT));
        assert_eq!((fields().delay(&message), fields().cost(&message)), (None, 1));
    }

    #[test]
    fn a_name_of_a_header_is_short_text() {
        for wrong in ["", "a\nb", &"x".repeat(FIELD_NAME_BYTES_MAX + 1)] {
            assert!(wrong.parse::<HeaderName>().is_err(), "{wrong:?}");
        }
        let shown = fields().to_string();
        assert_eq!(
            shown,
            "fair_key=tenant, weight=weight, priority=urgency, throttle_keys=limits, delay=delay, cost=cost"
        );
        assert!(MessageFields::default().check().is_err() && fields().check().is_ok());
    }
}
