//! The flags of settings, made from the table, and `--config`. Clap parses them and refuses wrong values as it does
//! for all flags.

use std::path::PathBuf;

use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, builder::TypedValueParser as _,
    parser::ValueSource,
};
use sennit_settings::{Assignment, Assignments, Flag, Kind, Setting, Source, Value};

use super::table::{SETTINGS, Start};

/// The settings file, and what the flags of settings say.
#[derive(Clone, Debug)]
pub struct SettingFlags {
    /// The settings file, if one is named.
    pub config: Option<PathBuf>,
    /// The values of flags.
    pub assignments: Assignments,
}

/// The flag of a row, if it has one.
fn flag_of(row: &'static Setting<Start>, defaults: &Start) -> Option<Arg> {
    let name = row.flag.name()?;
    let default = match (row.get)(defaults) {
        Value::Unset => row.unset.to_owned(),
        Value::List(_) | Value::Switch(_) => String::new(),
        default => default.to_string(),
    };
    let (mut help, mut long) = (row.help.to_owned(), format!("{}\n", row.help));
    if let Kind::OneOf(words) = row.kind
        && let Flag::Value(_) = row.flag
    {
        let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        help = format!("{help} [possible values: {}]", names.join(", "));
        let longest = names.iter().map(|name| name.len()).max().unwrap_or_default() + 1;
        long.push_str("\nPossible values:");
        for (word, meaning) in words {
            let word = format!("{word}:");
            long.push_str(&format!("\n- {word:longest$} {meaning}"));
        }
        long.push('\n');
    }
    if !default.is_empty() && (row.kind == Kind::Switch || matches!(row.flag, Flag::Value(_))) {
        help = format!("{help} [default: {default}]");
        long.push_str(&format!("\n[default: {default}]"));
    }
    long.push_str(&format!("\n[env: {}]", row.variable_name()));
    let arg = Arg::new(name).long(name).help(help).long_help(long);
    match row.flag {
        // --name is --name=true, so that a flag can also take back what a file says.
        Flag::Switch(_, means) if row.kind == Kind::Switch => {
            let arg = arg.num_args(0..=1).require_equals(true).default_missing_value(means);
            let parser = clap::builder::BoolishValueParser::new().map(|yes| yes.to_string());
            return Some(arg.value_name(row.shape).value_parser(parser));
        }
        Flag::Switch(..) => return Some(arg.action(ArgAction::SetTrue)),
        _ => {}
    }
    let shape = if row.kind == Kind::Secret { "FILE" } else { row.shape };
    let arg = arg.value_name(shape).value_parser(move |text: &str| check(row, text));
    Some(match row.kind {
        Kind::List => arg.action(ArgAction::Append),
        _ => arg.action(ArgAction::Set),
    })
}

/// Returns `text` if it is a value of this setting. The path of a secret is looked at later.
fn check(row: &Setting<Start>, text: &str) -> Result<String, String> {
    if row.kind != Kind::Secret {
        let given = Assignment::new(vec![text.to_owned()], Source::Default);
        (row.set)(&mut Start::default(), &given)?;
    }
    Ok(text.to_owned())
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .env("SENNIT_CONFIG")
            .hide_env_values(true)
            .value_parser(clap::value_parser!(PathBuf))
            .help("The settings file, in TOML; `sennit config defaults` prints one");
        let defaults = Start::default();
        let flags = SETTINGS.iter().filter_map(|row| flag_of(row, &defaults));
        command.arg(config).args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut assignments = Assignments::default();
        for (at, row) in SETTINGS.iter().enumerate() {
            let Some(name) = row.flag.name() else { continue };
            if matches.value_source(name) != Some(ValueSource::CommandLine) {
                continue;
            }
            let texts = match row.flag {
                Flag::Switch(_, means) if row.kind != Kind::Switch => vec![means.to_owned()],
                _ => matches.get_many::<String>(name).into_iter().flatten().cloned().collect(),
            };
            let mut given = Assignment::new(texts, Source::Flag(format!("--{name}")));
            given.is_secret_path = row.kind == Kind::Secret;
            assignments.list.push((at, given));
        }
        Ok(Self { config: matches.get_one("config").cloned(), assignments })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The same flags, of which the help shows `--config` alone.
#[derive(Clone, Debug)]
pub struct HiddenSettingFlags(pub SettingFlags);

impl Args for HiddenSettingFlags {
    fn augment_args(command: Command) -> Command {
        let hide = |flag: Arg| {
            let is_file = flag.get_id() == "config";
            flag.hide(!is_file)
        };
        SettingFlags::augment_args(command).mut_args(hide)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for HiddenSettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        SettingFlags::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}
