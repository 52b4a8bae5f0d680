//! The context in use: its values become the defaults of the options that say how to reach a broker. Options and the
//! environment win.

use std::{ffi::OsString, sync::OnceLock};

use clap::{Arg, Command};

use crate::{
    context_file::{self, Context, Contexts, Credential},
    exit::{Exit, Failure},
};

/// Verbs that reach no broker, or say in another way how. Their options keep their defaults.
const WITHOUT_CONTEXT: [&str; 8] =
    ["serve", "context", "cert", "storage", "restore", "config", "seal", "bench-worker"];

/// The environment variables that name a broker.
const ADDRESSES: [&str; 2] = ["SENNIT_SERVER", "SENNIT_HTTP"];

static CREDENTIAL: OnceLock<Option<Credential>> = OnceLock::new();

/// The credential of the context in use.
pub fn credential() -> Option<&'static Credential> {
    CREDENTIAL.get()?.as_ref()
}

/// The command line with the defaults of the context in use.
///
/// # Errors
/// The context that is named does not exist, or the file of contexts is not good.
pub fn with_context(command: Command) -> Result<Command, Failure> {
    let line: Vec<_> = std::env::args_os().skip(1).collect();
    let context = in_use(&line)?;
    let _ = CREDENTIAL.set(context.as_ref().and_then(|context| context.credential.clone()));
    Ok(match context {
        Some(context) => {
            command.mut_subcommands(|verb| match WITHOUT_CONTEXT.contains(&verb.get_name()) {
                true => verb,
                false => with_defaults(verb, &context),
            })
        }
        None => command,
    })
}

/// The context that a command line uses.
fn in_use(line: &[OsString]) -> Result<Option<Context>, Failure> {
    if line.iter().any(|word| ["-h", "--help", "-V", "--version"].iter().any(|help| word == help)) {
        return Ok(None);
    }
    let verb = line.iter().find(|word| !word.to_string_lossy().starts_with('-'));
    if verb.is_none_or(|verb| WITHOUT_CONTEXT.iter().any(|other| verb == other)) {
        return Ok(None);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let named = option(line, "--context").or_else(|| variable("SENNIT_CONTEXT"));
    // Who names a broker means that one, and not the credentials of another.
    let is_elsewhere = option(line, "--server").is_some()
        || option(line, "--http").is_some()
        || ADDRESSES.iter().any(|name| variable(name).is_some());
    if named.is_none() && is_elsewhere {
        return Ok(None);
    }
    let Some(path) = context_file::path() else {
        return match named {
            None => Ok(None),
            Some(_) => Err(Failure::new(Exit::Usage, "contexts need XDG_CONFIG_HOME or HOME")),
        };
    };
    let contexts = Contexts::read(&path)?;
    let Some(name) = named.or_else(|| contexts.current.clone()) else { return Ok(None) };
    let mut context = contexts.named(&name)?.clone();
    // The two exclude each other, so one of the command line replaces the other of the context.
    let is_set = |flag: &str, name: &str| option(line, flag).is_some() || variable(name).is_some();
    if is_set("--tls-ca", "SENNIT_TLS_CA") {
        context.tls_fingerprint = None;
    }
    if is_set("--tls-fingerprint", "SENNIT_TLS_FINGERPRINT") {
        context.tls_ca = None;
    }
    Ok(Some(context))
}

/// The value of an option before it is parsed.
fn option(line: &[OsString], flag: &str) -> Option<String> {
    let mut words = line.iter().map(|word| word.to_string_lossy()).take_while(|word| word != "--");
    while let Some(word) = words.next() {
        if word == flag {
            return words.next().map(Into::into);
        }
        if let Some(value) = word.strip_prefix(flag).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value.to_owned());
        }
    }
    None
}

/// A command whose options, and whose subcommands' options, have the values of the context as defaults.
fn with_defaults(command: Command, context: &Context) -> Command {
    let default = |arg: Arg| {
        let value = match arg.get_id().as_str() {
            "server" => &context.server,
            "http" => &context.http,
            "tls" if context.tls => &Some("true".to_owned()),
            "tls_ca" => &context.tls_ca,
            "tls_fingerprint" => &context.tls_fingerprint,
            "tls_cert" => &context.tls_cert,
            "tls_server_name" => &context.tls_server_name,
            _ => &None,
        };
        match value {
            // Once a run, so it may stay for ever.
            Some(value) => arg.default_value(&*String::leak(value.clone())),
            None => arg,
        }
    };
    command.mut_args(default).mut_subcommands(|verb| with_defaults(verb, context))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn an_option_is_found_before_it_is_parsed() {
        assert_eq!(option(&words("topic list --context a"), "--context").as_deref(), Some("a"));
        assert_eq!(option(&words("topic --context=b list"), "--context").as_deref(), Some("b"));
        assert_eq!(option(&words("publish jobs -- --context a"), "--context"), None);
        assert_eq!(option(&words("topic list --contexts a"), "--context"), None);
    }
}
