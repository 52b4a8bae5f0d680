//! Which connections a request means: its members `user`, `connection` or `all`. It knows no connections.

use super::refusals::ApiRefusal;
use crate::doors::live::target::Target;

/// The connections that the members mean.
///
/// # Errors
/// None are named, or in two ways.
pub(super) fn target(
    user: Option<&str>,
    connection: Option<&str>,
    all: bool,
) -> Result<Target, ApiRefusal> {
    match (user, connection, all) {
        (Some(""), ..) => Err(ApiRefusal::bad("user is empty: nobody has that name")),
        (Some(user), None, false) => Ok(Target::User(user.to_owned())),
        (None, Some(id), false) => id
            .parse()
            .map(Target::Connection)
            .map_err(|error| ApiRefusal::bad(format!("connection: {error}"))),
        (None, None, true) => Ok(Target::All),
        _ => Err(ApiRefusal::bad("name one of user, connection, and all: true")),
    }
}
