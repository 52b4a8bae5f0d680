//! What the broker refuses over a live connection, and how it closes one, as failures of a verb.

use sennit_centrifuge::{ErrorCode, ReplyError, code_reconnects};

use crate::exit::{Exit, Failure};

/// The failure that a refused command is.
pub fn refused(error: &ReplyError) -> Failure {
    Failure::new(exit_of(error), error.message.clone())
}

/// The failure that a connection's end is, which the other end told: a code and maybe words. One that clients come back after
/// can be tried again.
pub fn closed(code: u16, reason: &str) -> Failure {
    let exit = match code {
        3500 | 3507 => Exit::Forbidden,
        code if code_reconnects(code) => Exit::Unreachable,
        _ => Exit::Failed,
    };
    let reason = if reason.is_empty() { "no reason was told" } else { reason };
    Failure::new(exit, format!("the broker closed the live connection: {reason} ({code})"))
}

fn exit_of(error: &ReplyError) -> Exit {
    let is = |codes: &[ErrorCode]| codes.iter().any(|code| code.code() == error.code);
    if is(&[
        ErrorCode::Unauthorized,
        ErrorCode::PermissionDenied,
        ErrorCode::TokenExpired,
        ErrorCode::Expired,
        ErrorCode::TokenRevoked,
    ]) {
        Exit::Forbidden
    } else if is(&[ErrorCode::UnknownChannel]) {
        Exit::NotFound
    } else if is(&[ErrorCode::BadRequest]) {
        Exit::Usage
    } else if error.temporary || is(&[ErrorCode::TooManyRequests]) {
        Exit::Unreachable
    } else {
        Exit::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_and_closes_end_with_the_code_that_the_help_names() {
        let exit = |code: ErrorCode| refused(&code.into()).exit as u8;
        assert_eq!(exit(ErrorCode::PermissionDenied), 5);
        assert_eq!(exit(ErrorCode::UnknownChannel), 3);
        assert_eq!(exit(ErrorCode::BadRequest), 2);
        assert_eq!(exit(ErrorCode::Internal), 6, "it may go better a little later");
        assert_eq!(exit(ErrorCode::NotAvailable), 1);
        for (code, exit) in [(3001, 6), (3005, 6), (3500, 5), (3501, 1), (1009, 1), (1001, 6)] {
            assert_eq!(closed(code, "").exit as u8, exit, "{code}");
        }
    }
}
