//! The types of fields, in both encodings: texts, numbers, flags, and options, lists and maps of what is a field itself.

use std::{collections::BTreeMap, fmt};

use prost::encoding::{self, WireType};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

use crate::{
    context::{Context, Stopped},
    decode_error::Problem,
    field::{Field, Put, put_json_text},
    message::JsonField,
    protobuf,
    token::Token,
};

/// Numbers and flags are varints, and in JSON what serde makes of them.
macro_rules! varint_field {
    ($type:ty, $expected:literal, $to_varint:expr, $of_varint:expr) => {
        impl Put for $type {
            fn is_absent(&self) -> bool {
                *self == <$type>::default()
            }

            fn put_json(&self, out: &mut Vec<u8>) {
                // Writing to memory does not fail.
                serde_json::to_writer(out, self).unwrap_or_default();
            }

            fn put_protobuf(&self, number: u32, out: &mut Vec<u8>) {
                protobuf::put_varint(number, ($to_varint)(*self), out);
            }
        }

        impl Field for $type {
            const EXPECTED: &'static str = $expected;

            fn read_json<'de, D: Deserializer<'de>>(
                &mut self,
                from: D,
                _: &Context,
            ) -> Result<(), D::Error> {
                *self = Option::deserialize(from)?.unwrap_or_default();
                Ok(())
            }

            fn read_protobuf(
                &mut self,
                wire_type: WireType,
                from: &mut &[u8],
                context: &Context,
            ) -> Result<(), Stopped> {
                let value = protobuf::varint(wire_type, from, Self::EXPECTED, context)?;
                *self = ($of_varint)(value);
                Ok(())
            }
        }
    };
}

varint_field!(bool, "true or false", u64::from, |value| value != 0);
varint_field!(u32, "an integer from 0 to 4294967295", u64::from, |value| value as u32);
varint_field!(u64, "an integer, not negative", |value| value, |value| value);
varint_field!(i32, "an integer of 32 bits", |value: i32| i64::from(value) as u64, |value| value
    as i32);
varint_field!(i64, "an integer of 64 bits", |value: i64| value as u64, |value| value as i64);

impl Put for str {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }

    fn put_json(&self, out: &mut Vec<u8>) {
        put_json_text(self, out);
    }

    fn put_protobuf(&self, number: u32, out: &mut Vec<u8>) {
        protobuf::put_bytes(number, self.as_bytes(), out);
    }
}

impl Put for String {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }

    fn put_json(&self, out: &mut Vec<u8>) {
        self.as_str().put_json(out);
    }

    fn put_protobuf(&self, number: u32, out: &mut Vec<u8>) {
        self.as_str().put_protobuf(number, out);
    }
}

impl Field for String {
    const EXPECTED: &'static str = "a text";

    fn read_json<'de, D: Deserializer<'de>>(
        &mut self,
        from: D,
        _: &Context,
    ) -> Result<(), D::Error> {
        *self = Option::deserialize(from)?.unwrap_or_default();
        Ok(())
    }

    fn read_protobuf(
        &mut self,
        wire_type: WireType,
        from: &mut &[u8],
        context: &Context,
    ) -> Result<(), Stopped> {
        let bytes = protobuf::bytes(wire_type, from, Self::EXPECTED, context)?;
        let text = std::str::from_utf8(bytes).map_err(|_| context.stop(Problem::NotText))?;
        text.clone_into(self);
        Ok(())
    }
}

impl Put for Token {
    fn is_absent(&self) -> bool {
        self.0.is_absent()
    }

    fn put_json(&self, out: &mut Vec<u8>) {
        self.0.put_json(out);
    }

    fn put_protobuf(&self, number: u32, out: &mut Vec<u8>) {
        self.0.put_protobuf(number, out);
    }
}

impl Field for Token {
    const EXPECTED: &'static str = String::EXPECTED;

    fn read_json<'de, D: Deserializer<'de>>(
        &mut self,
        from: D,
        context: &Context,
    ) -> Result<(), D::Error> {
        self.0.read_json(from, context)
    }

    fn read_protobuf(
        &mut self,
        wire_type: WireType,
        from: &mut &[u8],
        context: &Context,
    ) -> Result<(), Stopped> {
        self.0.read_protobuf(wire_type, from, context)
    }
}

impl<F: Put> Put for Option<F> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn put_json(&self, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.put_json(out),
            None => out.extend_from_slice(b"null"),
        }
    }

    fn put_protobuf(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.put_protobuf(number, out);
        }
    }
}

impl<F: Field> Field for Option<F> {
    const EXPECTED: &'static str = F::EXPECTED;

    fn read_json<'de, D: Deserializer<'de>>(
        &mut self,
        from: D,
        context: &Context,
    ) -> Result<(), D::Error> {
        from.deserialize_option(JsonOption(self, context))
    }

    fn read_protobuf(
        &mut self,
        wire_type: WireType,
        from: &mut &[u8],
        context: &Context,
    ) -> Result<(), Stopped> {
        self.get_or_insert_default().read_protobuf(wire_type, from, context)
    }
}

/// Reads a value that may be `null`.
struct JsonOption<'f, F>(&'f mut Option<F>, &'f Context);

impl<'de, F: Field> Visitor<'de> for JsonOption<'_, F> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(F::EXPECTED)
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.0.get_or_insert_default().read_json(from, self.1)
    }
}

impl<F: Put> Put for Vec<F> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }

    fn put_json(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (index, value) in self.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            value.put_json(out);
        }
        out.push(b']');
    }

    fn put_protobuf(&self, number: u32, out: &mut Vec<u8>) {
        for value in self {
            value.put_protobuf(number, out);
        }
    }
}

impl<F: Field> Field for Vec<F> {
    const EXPECTED: &'static str = "a list";

    fn read_json<'de, D: Deserializer<'de>>(
        &mut self,
        from: D,
        context: &Context,
    ) -> Result<(), D::Error> {
        from.deserialize_option(JsonList(self, context))
    }

    fn read_protobuf(
        &mut self,
        wire_type: WireType,
        from: &mut &[u8],
        context: &Context,
    ) -> Result<(), Stopped> {
        context.check_entries(self.len() + 1).map_err(|problem| context.stop(problem))?;
        let mut value = F::default();
        value.read_protobuf(wire_type, from, context)?;
        self.push(value);
        Ok(())
    }
}

/// Reads a list, or `null` as an empty one.
struct JsonList<'f, F>(&'f mut Vec<F>, &'f Context);

impl<'de, F: Field> Visitor<'de> for JsonList<'_, F> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a list")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let Self(list, context) = self;
        loop {
            let mut value = F::default();
            if from.next_element_seed(JsonField(&mut value, context))?.is_none() {
                return Ok(());
            }
            let checked = context.check_entries(list.len() + 1);
            checked.map_err(|problem| context.stop_json(problem))?;
            list.push(value);
        }
    }
}

/// The numbers of key and value in the entry of a map.
const KEY: u32 = 1;
const VALUE: u32 = 2;

/// Writes one entry of a map.
fn put_protobuf_entry(number: u32, key: &str, value: &(impl Put + ?Sized), out: &mut Vec<u8>) {
    encoding::encode_key(number, WireType::LengthDelimited, out);
    protobuf::put_delimited(out, |out| {
        key.put_protobuf(KEY, out);
        value.put_protobuf(VALUE, out);
    });
}

/// Writes a JSON object of names and values.
fn put_json_map<'m, V: Put + ?Sized + 'm>(
    entries: impl Iterator<Item = (&'m str, &'m V)>,
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    for (index, (key, value)) in entries.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        put_json_text(key, out);
        out.push(b':');
        value.put_json(out);
    }
    out.push(b'}');
}

/// A map of texts that lie elsewhere.
pub(crate) struct TextMap<'t>(pub &'t [(&'t str, &'t str)]);

impl Put for TextMap<'_> {
    fn is_absent(&self) -> bool {
        self.0.is_empty()
    }

    fn put_json(&self, out: &mut Vec<u8>) {
        put_json_map(self.0.iter().copied(), out);
    }

    fn put_protobuf(&self, number: u32, out: &mut Vec<u8>) {
        for (key, value) in self.0 {
            put_protobuf_entry(number, key, *value, out);
        }
    }
}

impl<F: Put> Put for BTreeMap<String, F> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }

    fn put_json(&self, out: &mut Vec<u8>) {
        put_json_map(self.iter().map(|(key, value)| (key.as_str(), value)), out);
    }

    fn put_protobuf(&self, number: u32, out: &mut Vec<u8>) {
        for (key, value) in self {
            put_protobuf_entry(number, key, value, out);
        }
    }
}

impl<F: Field> Field for BTreeMap<String, F> {
    const EXPECTED: &'static str = "an object";

    fn read_json<'de, D: Deserializer<'de>>(
        &mut self,
        from: D,
        context: &Context,
    ) -> Result<(), D::Error> {
        from.deserialize_option(JsonMap(self, context))
    }

    fn read_protobuf(
        &mut self,
        wire_type: WireType,
        from: &mut &[u8],
        context: &Context,
    ) -> Result<(), Stopped> {
        let mut entry = protobuf::bytes(wire_type, from, Self::EXPECTED, context)?;
        let (mut key, mut value) = (String::new(), F::default());
        while !entry.is_empty() {
            let (number, wire_type) = protobuf::key(&mut entry, context)?;
            match number {
                KEY => key.read_protobuf(wire_type, &mut entry, context)?,
                VALUE => value.read_protobuf(wire_type, &mut entry, context)?,
                _ => protobuf::skip(number, wire_type, &mut entry, context)?,
            }
        }
        self.insert(key, value);
        context.check_entries(self.len()).map_err(|problem| context.stop(problem))
    }
}

/// Reads a map, or `null` as an empty one.
struct JsonMap<'f, F>(&'f mut BTreeMap<String, F>, &'f Context);

impl<'de, F: Field> Visitor<'de> for JsonMap<'_, F> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let Self(map, context) = self;
        while let Some(key) = from.next_key::<String>()? {
            let mut value = F::default();
            from.next_value_seed(JsonField(&mut value, context))?;
            map.insert(key, value);
            let checked = context.check_entries(map.len());
            checked.map_err(|problem| context.stop_json(problem))?;
        }
        Ok(())
    }
}
