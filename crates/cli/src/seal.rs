//! `sennit seal`: keys for sealed messages: make them, show which a file has, print the public ones. It reaches no broker.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use sennit_seal::{Key, KeyKind, KeyRing, LabelledKey};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::{
    exit::{Exit, Failure},
    key_files,
    output::{print_json, print_table, print_text, print_to_stderr},
};

const EXAMPLES: &str = "\
Examples:
  sennit seal new channel news.keys                all who have the file read and write
  sennit publish news 'for us only' --seal news.keys --create
  sennit read news --unseal news.keys
  sennit seal new channel news.keys --add          a newer key; the old one still opens

  sennit seal new recipient ada.keys > ada.pub     others seal for ada with ada.pub
  sennit seal new signing shop.keys > shop.pub     others check with shop.pub what shop signs
  sennit publish orders 'for ada' --seal ada.pub --seal shop.keys
  sennit read orders --unseal ada.keys --unseal shop.pub

docs/reference/sealed-messages.md has the format, and what the broker still sees.";

/// The arguments of `sennit seal`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print JSON, a line for each key
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make a key in a file that its owner alone may read; print its public half if it has one
    New {
        /// What it is for
        kind: NewKind,
        /// The file
        file: PathBuf,
        /// A name for people
        #[arg(long, value_name = "TEXT", default_value = "", value_parser = label)]
        #[arg(hide_default_value = true)]
        label: String,
        /// Put the key before those that the file has: it seals and signs from now on
        #[arg(long)]
        add: bool,
    },
    /// Print the kinds, ids and labels of the keys in a file, without the keys
    Show {
        /// The file
        file: PathBuf,
    },
    /// Print the keys of a file that others may see: the public halves
    Public {
        /// The file
        file: PathBuf,
    },
}

/// A kind of key to make.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum NewKind {
    /// Seals and opens; all readers and writers of a topic share it
    Channel,
    /// Opens what others seal for its public half
    Recipient,
    /// Signs; others check with its public half
    Signing,
    /// Signs and checks; whoever can check can sign
    SharedSigning,
}

impl From<NewKind> for KeyKind {
    fn from(kind: NewKind) -> Self {
        match kind {
            NewKind::Channel => Self::Channel,
            NewKind::Recipient => Self::RecipientPrivate,
            NewKind::Signing => Self::Signing,
            NewKind::SharedSigning => Self::SharedSigning,
        }
    }
}

fn label(text: &str) -> Result<String, String> {
    match text.chars().any(char::is_control) {
        true => Err("a label is one line of text".to_owned()),
        false => Ok(text.trim().to_owned()),
    }
}

/// Runs the verb.
///
/// # Errors
/// The file cannot be used, or it is there already.
pub fn run(args: Args) -> Result<(), Failure> {
    let Args { json, verb } = args;
    match verb {
        Verb::New { kind, file, label, add } => new(kind.into(), &file, &label, add, json),
        Verb::Show { file } => show(&file, json),
        Verb::Public { file } => {
            let ring = ring_of(&file)?;
            ring.keys().try_for_each(|LabelledKey { key, label }| match key.public() {
                Some(public) if json => print_json(&shown(&public, label, Some(&public))),
                Some(public) => print_public(&public, label),
                None => Ok(()),
            })
        }
    }
}

fn new(kind: KeyKind, file: &Path, label: &str, add: bool, json: bool) -> Result<(), Failure> {
    let key = Key::generate(kind).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let mut ring = KeyRing::default();
    let wrong = |error: sennit_seal::KeyRingError| Failure::new(Exit::Usage, error.to_string());
    ring.add(key.clone(), label).map_err(wrong)?;
    let mut text = ring.to_text();
    let exists = file.try_exists().map_err(|error| Failure::from(error).about(file.display()))?;
    if exists && !add {
        let said =
            format!("{} is there already: --add puts the new key first in it", file.display());
        return Err(Failure::new(Exit::Conflict, said));
    }
    if exists {
        text = Zeroizing::new([text.as_str(), &key_files::read(file)?].concat());
        KeyRing::from_text(&text).map_err(wrong)?;
    }
    write(file, &text, exists).map_err(|error| Failure::from(error).about(file.display()))?;
    let public = key.public();
    if json {
        return print_json(&shown(&key, label, public.as_ref()));
    }
    print_to_stderr(&format!("{} {} in {}", kind.prefix(), key.id(), file.display()));
    public.map_or(Ok(()), |public| print_public(&public, label))
}

/// Writes the file whole, so that no run that is ended leaves half of it.
fn write(file: &Path, text: &str, exists: bool) -> io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = file.with_file_name(name);
    // What a run has left that was ended may be readable by others.
    let _ = fs::remove_file(&temporary);
    let mut options = fs::OpenOptions::new();
    let mut written = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    if exists {
        return fs::rename(&temporary, file);
    }
    // A file that another program made meanwhile keeps its keys.
    let linked = fs::hard_link(&temporary, file);
    let _ = fs::remove_file(&temporary);
    linked
}

fn ring_of(file: &Path) -> Result<KeyRing, Failure> {
    key_files::read_all(std::slice::from_ref(&file.to_owned()))
}

fn show(file: &Path, json: bool) -> Result<(), Failure> {
    let ring = ring_of(file)?;
    if json {
        let mut keys = ring.keys();
        return keys
            .try_for_each(|LabelledKey { key, label }| print_json(&shown(key, label, None)));
    }
    let row = |LabelledKey { key, label }: &LabelledKey| {
        vec![key.kind().prefix().to_owned(), key.id().to_string(), label.clone()]
    };
    print_table(&["KIND", "ID", "LABEL"], &ring.keys().map(row).collect::<Vec<_>>())
}

fn shown(key: &Key, label: &str, public: Option<&Key>) -> Value {
    let public = public.map(|public| public.to_text().to_string());
    json!({ "kind": key.kind().prefix(), "id": key.id().to_string(), "label": label, "public": public })
}

fn print_public(public: &Key, label: &str) -> Result<(), Failure> {
    let text = public.to_text();
    match label {
        "" => print_text(&format!("{}\n", *text)),
        label => print_text(&format!("{} {label}\n", *text)),
    }
}
