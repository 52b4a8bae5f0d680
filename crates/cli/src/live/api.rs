//! Requests of the HTTP API: their query, and the JSON of their answers. It knows no verb.

use serde_json::Value;

use crate::{
    exit::{Exit, Failure},
    http::Answer,
};

/// The query of a request, with a question mark if there is anything: parameters that have a value.
pub fn query(parameters: &[(&str, Option<&str>)]) -> String {
    let mut query = String::new();
    for (name, value) in parameters {
        let Some(value) = value else { continue };
        query.push(if query.is_empty() { '?' } else { '&' });
        query.push_str(name);
        query.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                query.push(char::from(byte));
            } else {
                query += &format!("%{byte:02X}");
            }
        }
    }
    query
}

/// The JSON of an answer.
///
/// # Errors
/// It is none.
pub fn body_json(answer: &Answer) -> Result<Value, Failure> {
    serde_json::from_slice(&answer.body)
        .map_err(|error| Failure::new(Exit::Failed, format!("the answer is no JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_what_is_said_and_nothing_that_could_be_read_otherwise() {
        assert_eq!(query(&[("a", None)]), "");
        assert_eq!(
            query(&[("a", Some("x y&z=ß")), ("b", None), ("c", Some("1"))]),
            "?a=x%20y%26z%3D%C3%9F&c=1"
        );
    }
}
