//! The parameters behind the question mark of a request: names and texts. It knows no requests.

use crate::broker::path_encoding::decoded;

use super::refusals::ApiRefusal;

/// Parameters, each once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(&'static str, String)>);

impl Query {
    /// Reads those that are known.
    ///
    /// # Errors
    /// One is not known, or is there twice.
    pub(super) fn read(
        query: Option<&str>,
        known: &'static [&'static str],
    ) -> Result<Self, ApiRefusal> {
        let mut read = Self::default();
        let parameters = query.unwrap_or_default().split('&').filter(|text| !text.is_empty());
        for parameter in parameters {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let Some(name) = known.iter().find(|known| **known == name) else {
                let detail =
                    format!("there is no parameter {name:?}; there are {}", known.join(", "));
                return Err(ApiRefusal::bad(detail));
            };
            let bytes = decoded(value)
                .map(|letters| letters.into_iter().map(|(byte, _)| byte).collect::<Vec<_>>());
            let value = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            let value = value.ok_or_else(|| {
                ApiRefusal::bad(format!("{name} is not percent-encoded as UTF-8"))
            })?;
            if read.get(name).is_some() {
                return Err(ApiRefusal::bad(format!("{name} is given twice")));
            }
            read.0.push((*name, value));
        }
        Ok(read)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(held, _)| *held == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that is a number.
    ///
    /// # Errors
    /// It is another text.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, ApiRefusal> {
        let number = self.get(name).map(str::parse).transpose();
        number.map_err(|_| ApiRefusal::bad(format!("{name} is a whole number")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_known_and_once_there() {
        let query = Query::read(Some("user=a%20b%C3%9F&limit=7&"), &["user", "limit"]).unwrap();
        assert_eq!(query.get("user"), Some("a bß"));
        assert_eq!(query.number("limit"), Ok(Some(7)));
        assert_eq!(query.number("user").unwrap_err().detail, "user is a whole number");
        assert_eq!(Query::read(None, &[]), Ok(Query::default()));
        for (query, said) in [
            ("other=1", "there is no parameter \"other\"; there are user"),
            ("user=a&user=b", "user is given twice"),
            ("user=%ff", "user is not percent-encoded as UTF-8"),
            ("user=%f", "user is not percent-encoded as UTF-8"),
        ] {
            assert_eq!(Query::read(Some(query), &["user"]).unwrap_err().detail, said);
        }
    }
}
