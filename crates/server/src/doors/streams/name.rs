//! The path of a stream and the name of its topic: the same text, in one spelling. It knows no
//! requests.

use http::StatusCode;
use sennit_model::{NameError, TopicName};

use super::refusals::Problem;
pub(super) use super::routes::ROOT;
use crate::{
    broker::path_encoding::{decoded, spelled},
    broker::reserved_names::{RESERVED, is_reserved},
};

/// The topic of the stream at `path`, which begins with [`ROOT`]: its name is the rest in its one
/// [spelling](spelled).
///
/// # Errors
/// There cannot be a stream: the path is not the protocol's, is not well encoded, or is too long.
pub(super) fn of_path(path: &str) -> Result<TopicName, Problem> {
    let unknown = || Problem::not_found("unknown_path", format!("streams are below {ROOT}"));
    let path = path.strip_prefix(ROOT).filter(|path| !path.is_empty()).ok_or_else(unknown)?;
    // Most are names as they stand. What has a percent may be spelled otherwise.
    let spelled = match path.parse() {
        Ok(name) if !path.contains('%') => Ok(name),
        _ => {
            let wrong = || Problem::bad(format!("{path:?} is no path: %XX stands for a byte"));
            spelled(&decoded(path).ok_or_else(wrong)?).parse()
        }
    };
    let name: TopicName = spelled.map_err(|error: NameError| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_name", error.to_string())
    })?;
    // However it was written.
    if is_reserved(&name) {
        let detail = format!("what is below {ROOT}{RESERVED}/ is reserved for the protocol");
        return Err(Problem::not_found("reserved_path", detail));
    }
    Ok(name)
}

/// The text that `part` of an address means.
pub(super) fn text(part: &str) -> Option<String> {
    let bytes = decoded(part)?.into_iter().map(|(byte, _)| byte);
    String::from_utf8(bytes.collect()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_has_its_place_among_the_routes() {
        assert_eq!(crate::doors::streams::routes::RESERVED_ROOT, format!("{ROOT}{RESERVED}/"));
    }

    #[test]
    fn what_is_no_stream_is_not_found() {
        for path in ["", "/", "s/a", "/__ds", "/__ds/x", "/%5f_ds/x", "/%5F%5F%64s/subscriptions"] {
            let path = format!("/v1/stream{path}");
            assert_eq!(of_path(&path).unwrap_err().status(), StatusCode::NOT_FOUND, "{path}");
        }
        assert!(of_path("/v1/stream/__dst").is_ok());
        let long = format!("{ROOT}{}", "x".repeat(10_000));
        assert_eq!(of_path(&long).unwrap_err().status(), StatusCode::BAD_REQUEST);
    }
}
