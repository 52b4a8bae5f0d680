//! The sandbox: a Lua of its own for each script, with a library that can neither leave it nor outrun its budget. What
//! the script asks of its message and of the configuration is answered here.

use std::{cell::RefCell, fmt, rc::Rc};

use mlua::{
    Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, VmState,
    chunk::ChunkMode,
};
use sennit_model::limits::{HOOK_MEMORY_BYTES_MAX, HOOK_PAYLOAD_BYTES_MAX};

use crate::{
    budget::{Budget, Exceeded, LOOK_EVERY},
    pattern::{self, Capture, Match, Pattern},
    script_error::CHUNK_NAME,
    subject::{Settings, Subject},
};

const PRELUDE: &str = include_str!("prelude.lua");

/// Bytes of headers for each instruction that a look at them costs.
const HEADER_BYTES_PER_INSTRUCTION: usize = 64;

/// A Lua, and what its functions look at.
pub(crate) struct Sandbox {
    lua: Lua,
    pub(crate) budget: Rc<Budget>,
    subject: Rc<RefCell<Subject>>,
    defined: Function,
    on_publish: Function,
    on_failure: Function,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("bytes", &self.lua.used_memory()).finish_non_exhaustive()
    }
}

impl Sandbox {
    /// A sandbox for a script of this topic.
    pub(crate) fn new(topic: &str, settings: &Rc<dyn Settings>) -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::UTF8;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let budget = Rc::new(Budget::default());
        let subject = Rc::new(RefCell::new(Subject::Nothing));
        let host = lua.create_table()?;
        add_message(&lua, &host, topic, &budget, &subject)?;
        add_patterns(&lua, &host, &budget)?;
        let charged = budget.clone();
        let charge = lua.create_function(move |_, instructions: i64| {
            let instructions = u64::try_from(instructions).unwrap_or(0);
            charged.charge(instructions).map_err(mlua::Error::runtime)
        })?;
        host.raw_set("charge", charge)?;
        let (settings, charged) = (settings.clone(), budget.clone());
        let config = lua.create_function(move |lua, key: LuaString| {
            charged.charge(8).map_err(mlua::Error::runtime)?;
            let value = std::str::from_utf8(&key.as_bytes()).ok().and_then(|key| settings.get(key));
            value.map(|value| lua.create_string(&value)).transpose()
        })?;
        host.raw_set("config", config)?;
        let prelude = lua.load(PRELUDE).set_name("=library").set_mode(ChunkMode::Text);
        let (defined, on_publish, on_failure) = prelude.call(host)?;
        lua.set_memory_limit(HOOK_MEMORY_BYTES_MAX)?;
        let looked = budget.clone();
        let every = HookTriggers::new().every_nth_instruction(LOOK_EVERY);
        lua.set_hook(every, move |_, _| {
            looked.look().map(|()| VmState::Continue).map_err(mlua::Error::runtime)
        })?;
        Ok(Self { lua, budget, subject, defined, on_publish, on_failure })
    }

    /// Compiles a script, without running it. Its lines keep their numbers.
    pub(crate) fn compile(&self, source: &str) -> mlua::Result<Function> {
        // All that is global to the script is in a table that it gets anew for each run.
        let source = format!("local _ENV = ...; {source}");
        let name = format!("={}", CHUNK_NAME);
        self.lua.load(source).set_name(name).set_mode(ChunkMode::Text).into_function()
    }

    /// Says whether a script defines `on_publish`, and whether `on_failure`.
    pub(crate) fn defined(&self, script: &Function) -> mlua::Result<(bool, bool)> {
        self.run(Subject::Nothing, || self.defined.call(script))
    }

    pub(crate) fn on_publish(
        &self,
        script: &Function,
        subject: Subject,
    ) -> mlua::Result<MultiValue> {
        self.run(subject, || self.on_publish.call(script))
    }

    pub(crate) fn on_failure(
        &self,
        script: &Function,
        subject: Subject,
    ) -> mlua::Result<MultiValue> {
        self.run(subject, || self.on_failure.call(script))
    }

    fn run<T>(&self, subject: Subject, call: impl FnOnce() -> mlua::Result<T>) -> mlua::Result<T> {
        self.subject.replace(subject);
        self.budget.begin();
        let result = call();
        self.subject.replace(Subject::Nothing);
        if result.is_err() {
            // What it has left must not make the next run fail.
            self.lua.gc_collect()?;
        }
        result
    }
}

/// The functions by which a script looks at its message.
fn add_message(
    lua: &Lua,
    host: &Table,
    topic: &str,
    budget: &Rc<Budget>,
    subject: &Rc<RefCell<Subject>>,
) -> mlua::Result<()> {
    let topic = lua.create_string(topic)?;
    let held = subject.clone();
    let field = lua.create_function(move |lua, name: LuaString| {
        let held = held.borrow();
        let Some(view) = held.message() else { return Ok(Value::Nil) };
        let Subject::Message { producer, failure, .. } = &*held else { return Ok(Value::Nil) };
        let milliseconds = |span: std::time::Duration| {
            Value::Integer(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
        };
        let name = name.as_bytes();
        Ok(match (&*name, failure) {
            (b"topic", _) => Value::String(topic.clone()),
            (b"key", _) => Value::String(lua.create_string(view.key())?),
            (b"size", _) => Value::Integer(view.payload().len() as i64),
            (b"producer", None) => Value::String(lua.create_string(producer.to_string())?),
            (b"delay_ms", _) => view.delay().map_or(Value::Nil, milliseconds),
            (b"time_to_live_ms", _) => view.time_to_live().map_or(Value::Nil, milliseconds),
            (b"attempts", Some(failure)) => Value::Integer(i64::from(failure.attempts)),
            (b"age_ms", Some(failure)) => milliseconds(failure.age),
            (b"reason", Some(failure)) => Value::String(lua.create_string(&failure.reason)?),
            _ => Value::Nil,
        })
    })?;
    host.raw_set("field", field)?;

    let (held, charged) = (subject.clone(), budget.clone());
    let header = lua.create_function(move |lua, name: LuaString| {
        let held = held.borrow();
        let Some(view) = held.message() else { return Ok(None) };
        let bytes = view.encoded_headers().len();
        charged
            .charge((bytes / HEADER_BYTES_PER_INSTRUCTION) as u64)
            .map_err(mlua::Error::runtime)?;
        let name = name.as_bytes();
        let mut headers = view.headers().map_while(Result::ok);
        let found = headers.find(|(held, ..)| held.as_bytes() == &*name);
        found.map(|(_, _, value)| lua.create_string(value)).transpose()
    })?;
    host.raw_set("header", header)?;

    let (held, charged) = (subject.clone(), budget.clone());
    let headers = lua.create_function(move |lua, ()| {
        let flat = lua.create_table()?;
        let held = held.borrow();
        let Some(view) = held.message() else { return Ok(flat) };
        for (name, _, value) in view.headers().map_while(Result::ok) {
            charged.charge(4).map_err(mlua::Error::runtime)?;
            flat.raw_push(lua.create_string(name)?)?;
            flat.raw_push(lua.create_string(value)?)?;
        }
        Ok(flat)
    })?;
    host.raw_set("headers", headers)?;

    let (held, charged) = (subject.clone(), budget.clone());
    let payload = lua.create_function(move |lua, (first, last): (Option<i64>, Option<i64>)| {
        let held = held.borrow();
        let Some(view) = held.message() else { return lua.create_string("") };
        let payload = view.payload();
        let place = |place: i64| {
            usize::try_from(if place < 0 {
                place.saturating_add(payload.len() as i64 + 1)
            } else {
                place
            })
            .unwrap_or(0)
        };
        let start = place(first.unwrap_or(1)).max(1) - 1;
        let end = place(last.unwrap_or(-1)).min(payload.len());
        let part = payload.get(start..end).unwrap_or_default();
        let part = &part[..part.len().min(HOOK_PAYLOAD_BYTES_MAX)];
        charged.charge(part.len() as u64 / 64).map_err(mlua::Error::runtime)?;
        lua.create_string(part)
    })?;
    host.raw_set("payload", payload)
}

/// The functions that search in texts. The captures of the last search are kept until the next one.
fn add_patterns(lua: &Lua, host: &Table, budget: &Rc<Budget>) -> mlua::Result<()> {
    let last: Rc<RefCell<Vec<Capture>>> = Rc::default();
    let (kept, charged) = (last.clone(), budget.clone());
    type Arguments = (LuaString, LuaString, usize, usize, bool);
    let search = lua.create_function(move |_, arguments: Arguments| {
        let (subject, pattern, from, not_at_end, plain) = arguments;
        let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
        kept.borrow_mut().clear();
        let from = from.max(1) - 1;
        let not_at_end = not_at_end.checked_sub(1);
        charged.charge(4 + pattern.len() as u64 / 4).map_err(mlua::Error::runtime)?;
        let found = if plain {
            plain_find(&subject, &pattern, from, &charged).map_err(mlua::Error::runtime)?
        } else {
            let pattern = Pattern::parse(&pattern).map_err(mlua::Error::runtime)?;
            pattern::find(&pattern, &subject, from, not_at_end, &charged)
                .map_err(mlua::Error::runtime)?
        };
        let Some(Match { start, end, captures }) = found else { return Ok((None, None)) };
        kept.replace(captures);
        Ok((Some(start + 1), Some(end)))
    })?;
    host.raw_set("search", search)?;
    let kept = last.clone();
    let has_captures = lua.create_function(move |_, ()| Ok(!kept.borrow().is_empty()))?;
    host.raw_set("has_captures", has_captures)?;
    let captures = lua.create_function(move |lua, subject: LuaString| {
        let subject = subject.as_bytes();
        let kept = last.borrow();
        let values = kept.iter().map(|capture| match *capture {
            Capture::Text { start, end } => {
                lua.create_string(subject.get(start..end).unwrap_or_default()).map(Value::String)
            }
            Capture::Position(at) => Ok(Value::Integer(at as i64 + 1)),
            Capture::Open { .. } => Err(mlua::Error::runtime("malformed pattern")),
        });
        values.collect::<mlua::Result<MultiValue>>()
    })?;
    host.raw_set("captures", captures)
}

/// Finds a text in another, byte by byte.
fn plain_find(
    subject: &[u8],
    text: &[u8],
    from: usize,
    budget: &Budget,
) -> Result<Option<Match>, Exceeded> {
    let Some(rest) = subject.get(from..) else { return Ok(None) };
    budget.charge((rest.len() / 64 + 1) as u64 * (text.len() / 8 + 1) as u64)?;
    let start = if text.is_empty() {
        Some(0)
    } else {
        rest.windows(text.len()).position(|part| part == text)
    };
    Ok(start.map(|start| {
        let start = from + start;
        Match { start, end: start + text.len(), captures: Vec::new() }
    }))
}
