//! Messages of the protocol: lists of fields, each with its number in Protobuf and its name in JSON. The macro `message!`
//! makes of such a list the struct, and how both encodings write and read it.

use serde::{
    Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};

use crate::{
    context::{Context, Stopped},
    field::{Field, Message},
    protobuf,
};

/// Reads one field of a JSON object.
pub(crate) struct JsonField<'f, F>(pub &'f mut F, pub &'f Context);

impl<'de, F: Field> DeserializeSeed<'de> for JsonField<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.0.read_json(from, self.1)
    }
}

/// Reads a JSON object, or `null` as an empty one.
struct JsonMessage<'m, M>(&'m mut M, &'m Context);

impl<'de, M: Message> Visitor<'de> for JsonMessage<'_, M> {
    type Value = ();

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("an object")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(message, context) = self;
        context.enter().map_err(|problem| context.stop_json(problem))?;
        while let Some(number) = map.next_key_seed(JsonName(M::number_of))? {
            match number {
                Some(number) => message.read_json_field(number, &mut map, context)?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        context.leave();
        Ok(())
    }
}

/// Reads the name of a field as its number.
struct JsonName(fn(&str) -> Option<u32>);

impl<'de> DeserializeSeed<'de> for JsonName {
    type Value = Option<u32>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<u32>, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for JsonName {
    type Value = Option<u32>;

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<u32>, E> {
        Ok((self.0)(name))
    }
}

/// Reads all of `text` as a message in JSON. The depth is counted here, in both encodings alike, and not by serde_json.
pub(crate) fn read_json_text<M: Message>(
    message: &mut M,
    text: &[u8],
    context: &Context,
) -> serde_json::Result<()> {
    let mut from = serde_json::Deserializer::from_slice(text);
    from.disable_recursion_limit();
    read_json(message, &mut from, context)?;
    from.end()
}

/// Reads a message from JSON.
pub(crate) fn read_json<'de, M: Message, D: Deserializer<'de>>(
    message: &mut M,
    from: D,
    context: &Context,
) -> Result<(), D::Error> {
    from.deserialize_option(JsonMessage(message, context))
}

/// Reads all of `from` as a message in Protobuf.
pub(crate) fn read_protobuf<M: Message>(
    message: &mut M,
    mut from: &[u8],
    context: &Context,
) -> Result<(), Stopped> {
    context.enter().map_err(|problem| context.stop(problem))?;
    while !from.is_empty() {
        let (number, wire_type) = protobuf::key(&mut from, context)?;
        message.read_protobuf_field(number, wire_type, &mut from, context)?;
    }
    context.leave();
    Ok(())
}

/// Makes messages of lists of fields: `NUMBER "json_name" field: Type`.
macro_rules! message {
    ($(
        $(#[$of_message:meta])*
        $seen:vis struct $message:ident {
            $( $(#[$of_field:meta])* $number:literal $name:literal $field:ident: $type:ty, )*
        }
    )*) => { $(
        $(#[$of_message])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        $seen struct $message {
            $( $(#[$of_field])* pub $field: $type, )*
        }

        impl $crate::field::Message for $message {
            fn put(&self, to: &mut $crate::field::Writer<'_>) {
                let _ = &to;
                $( to.field($number, $name, &self.$field); )*
            }

            fn number_of(name: &str) -> Option<u32> {
                match name {
                    $( $name => Some($number), )*
                    _ => None,
                }
            }

            fn read_json_field<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                number: u32,
                from: &mut A,
                context: &$crate::context::Context,
            ) -> Result<(), A::Error> {
                // A message without fields uses it not.
                let _ = context;
                match number {
                    $( $number => from
                        .next_value_seed($crate::message::JsonField(&mut self.$field, context))
                        .inspect_err(|_| context.note_field($name, <$type as $crate::field::Field>::EXPECTED)), )*
                    _ => from.next_value::<serde::de::IgnoredAny>().map(drop),
                }
            }

            fn read_protobuf_field(
                &mut self,
                number: u32,
                wire_type: prost::encoding::WireType,
                from: &mut &[u8],
                context: &$crate::context::Context,
            ) -> Result<(), $crate::context::Stopped> {
                match number {
                    $( $number => $crate::field::Field::read_protobuf(&mut self.$field, wire_type, from, context)
                        .inspect_err(|_| context.note_field($name, <$type as $crate::field::Field>::EXPECTED)), )*
                    _ => $crate::protobuf::skip(number, wire_type, from, context),
                }
            }
        }

        impl $crate::field::Put for $message {
            fn is_absent(&self) -> bool {
                *self == Self::default()
            }

            fn put_json(&self, out: &mut Vec<u8>) {
                $crate::field::put_json_message(self, out);
            }

            fn put_protobuf(&self, number: u32, out: &mut Vec<u8>) {
                $crate::field::put_protobuf_message(number, self, out);
            }
        }

        impl $crate::field::Field for $message {
            const EXPECTED: &'static str = "an object";

            fn read_json<'de, D: serde::Deserializer<'de>>(
                &mut self,
                from: D,
                context: &$crate::context::Context,
            ) -> Result<(), D::Error> {
                $crate::message::read_json(self, from, context)
            }

            fn read_protobuf(
                &mut self,
                wire_type: prost::encoding::WireType,
                from: &mut &[u8],
                context: &$crate::context::Context,
            ) -> Result<(), $crate::context::Stopped> {
                let bytes = $crate::protobuf::bytes(wire_type, from, "a message", context)?;
                $crate::message::read_protobuf(self, bytes, context)
            }
        }
    )* };
}
