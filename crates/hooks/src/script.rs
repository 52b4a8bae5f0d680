//! A script: compiled once, and run for one message after the other.

use std::{fmt, rc::Rc};

use bytes::Bytes;
use mlua::{Function, MultiValue};
use sennit_model::limits::HOOK_SCRIPT_BYTES_MAX;

use crate::{
    decision::{FailureDecision, PublishDecision},
    sandbox::Sandbox,
    script_error::{InvalidScript, ScriptError},
    subject::{Failure, Settings, Subject},
};

/// A compiled script of one topic. It is of one thread.
pub struct Script {
    sandbox: Sandbox,
    compiled: Function,
    has_on_publish: bool,
    has_on_failure: bool,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("sandbox", &self.sandbox)
            .field("has_on_publish", &self.has_on_publish)
            .field("has_on_failure", &self.has_on_failure)
            .finish_non_exhaustive()
    }
}

impl Script {
    /// Compiles the script of a topic, and runs it once without a message. Costs some 100 us and 50 KiB.
    ///
    /// # Errors
    /// The script is too long, does not compile, fails, or defines no function of a hook.
    pub fn compile(
        source: &str,
        topic: &str,
        settings: &Rc<dyn Settings>,
    ) -> Result<Self, InvalidScript> {
        if source.len() > HOOK_SCRIPT_BYTES_MAX {
            return Err(InvalidScript::TooLong(source.len()));
        }
        let invalid = |error: mlua::Error| InvalidScript::from(ScriptError::of_lua(&error));
        let sandbox = Sandbox::new(topic, settings).map_err(invalid)?;
        let compiled = sandbox.compile(source).map_err(invalid)?;
        let (has_on_publish, has_on_failure) = sandbox
            .defined(&compiled)
            .map_err(|error| InvalidScript::from(failure(&sandbox, &error)))?;
        if !has_on_publish && !has_on_failure {
            return Err(InvalidScript::NoFunction);
        }
        Ok(Self { sandbox, compiled, has_on_publish, has_on_failure })
    }

    /// Whether it decides about messages that are published.
    #[must_use]
    pub fn has_on_publish(&self) -> bool {
        self.has_on_publish
    }

    /// Whether it decides about failed attempts.
    #[must_use]
    pub fn has_on_failure(&self) -> bool {
        self.has_on_failure
    }

    /// Decides about a message that is published: `encoded` is the message as it lies in a checked batch. Costs
    /// some microseconds for a script that looks at some headers (`examples/hook_cost.rs`).
    ///
    /// # Errors
    /// The script fails, exceeds its budget, or returns what no message can have.
    pub fn on_publish(
        &self,
        encoded: Bytes,
        producer: u64,
    ) -> Result<PublishDecision, ScriptError> {
        if !self.has_on_publish {
            return Ok(PublishDecision::default());
        }
        let subject = Subject::Message { encoded, producer, failure: None };
        let returned = self.sandbox.on_publish(&self.compiled, subject);
        PublishDecision::of_returned(self.returned(returned)?)
    }

    /// Decides about a failed attempt: `encoded` is the message as it lies in a checked batch.
    ///
    /// # Errors
    /// As [`Script::on_publish`].
    pub fn on_failure(
        &self,
        encoded: Bytes,
        failure: Failure,
    ) -> Result<FailureDecision, ScriptError> {
        if !self.has_on_failure {
            return Ok(FailureDecision::Default);
        }
        let subject = Subject::Message { encoded, producer: 0, failure: Some(failure) };
        let returned = self.sandbox.on_failure(&self.compiled, subject);
        FailureDecision::of_returned(self.returned(returned)?)
    }

    fn returned(&self, returned: mlua::Result<MultiValue>) -> Result<MultiValue, ScriptError> {
        returned.map_err(|error| failure(&self.sandbox, &error))
    }
}

fn failure(sandbox: &Sandbox, error: &mlua::Error) -> ScriptError {
    match sandbox.budget.exceeded() {
        Some(exceeded) => ScriptError::Exceeded(exceeded),
        None => ScriptError::of_lua(error),
    }
}
