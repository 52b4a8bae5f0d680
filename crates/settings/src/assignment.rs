//! What one source says of one setting, and how a row reads it.

use std::{fmt::Display, str::FromStr, time::Duration};

use crate::{
    problem::{Problems, Source, shown},
    quantity,
};

/// What one source says of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The texts: several only for a list.
    pub texts: Vec<String>,
    /// Where they are from.
    pub source: Source,
    /// Whether the text is the path of a file with the secret.
    pub is_secret_path: bool,
}

/// What one source says: rows of the table by their place in it, and what is wrong with the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignments {
    /// The assignments with the places of their rows.
    pub list: Vec<(usize, Assignment)>,
    /// What is wrong beside them.
    pub problems: Problems,
}

impl Assignment {
    /// Texts from `source`.
    #[must_use]
    pub fn new(texts: Vec<String>, source: Source) -> Self {
        Self { texts, source, is_secret_path: false }
    }

    /// The one text.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn text(&self) -> Result<&str, String> {
        match &self.texts[..] {
            [text] => Ok(text),
            [] => Err("there is no value".to_owned()),
            _ => Err("there are several values; give one".to_owned()),
        }
    }

    /// Reads the one text into `to`.
    ///
    /// # Errors
    /// It is no value of this type.
    pub fn parse_to<V: FromStr<Err: Display>>(&self, to: &mut V) -> Result<(), String> {
        *to = self.text()?.parse().map_err(|error: V::Err| error.to_string())?;
        Ok(())
    }

    /// Reads all texts into `to`.
    ///
    /// # Errors
    /// One of them is no value of this type.
    pub fn list_to<V: FromStr<Err: Display>>(&self, to: &mut Vec<V>) -> Result<(), String> {
        let parsed = self.texts.iter().map(|text| text.parse());
        *to = parsed.collect::<Result<_, _>>().map_err(|error: V::Err| error.to_string())?;
        Ok(())
    }

    /// Reads the text, if there is one, by `read` into `to`.
    ///
    /// # Errors
    /// As those of `read`.
    pub fn optional_to<V>(
        &self,
        to: &mut Option<V>,
        read: impl FnOnce(&Self) -> Result<V, String>,
    ) -> Result<(), String> {
        *to = if self.texts.is_empty() { None } else { Some(read(self)?) };
        Ok(())
    }

    /// The text as a value of this type.
    ///
    /// # Errors
    /// It is none.
    pub fn parsed<V: FromStr<Err: Display>>(&self) -> Result<V, String> {
        self.text()?.parse().map_err(|error: V::Err| error.to_string())
    }

    /// A whole number.
    ///
    /// # Errors
    /// It is none, or too large.
    pub fn number<V: TryFrom<u64>>(&self) -> Result<V, String> {
        let text = self.text()?;
        let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let wrong = || format!("{} is no whole number: write 0, 1, 2 or more", shown(text));
        if !is_digits {
            return Err(wrong());
        }
        let number = text.parse::<u64>().ok().and_then(|number| V::try_from(number).ok());
        number.ok_or_else(|| format!("{} is too large", shown(text)))
    }

    /// A duration.
    ///
    /// # Errors
    /// It is none.
    pub fn duration(&self) -> Result<Duration, String> {
        quantity::duration(self.text()?)
    }

    /// A size in bytes.
    ///
    /// # Errors
    /// It is none, or too large.
    pub fn size<V: TryFrom<u64>>(&self) -> Result<V, String> {
        let text = self.text()?;
        let bytes = quantity::size(text)?;
        V::try_from(bytes).map_err(|_| format!("{} is too large", shown(text)))
    }

    /// Yes or no.
    ///
    /// # Errors
    /// It is neither.
    pub fn switch(&self) -> Result<bool, String> {
        match self.text()? {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            text => Err(format!("{} is neither true nor false", shown(text))),
        }
    }

    /// The text, which is one of `words`.
    ///
    /// # Errors
    /// It is none of them.
    pub fn one_of<V: Copy>(&self, words: &[(&'static str, V)]) -> Result<V, String> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text);
        let names = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        found.map(|(_, value)| *value).ok_or_else(|| {
            format!("{} is none of the words that there are: {}", shown(text), names())
        })
    }
}
