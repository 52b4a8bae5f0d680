//! The options of a topic for live connections: how they are read, and how they are shown.

use sennit_model::{LiveSettings, WhenBehind};
use serde_json::{Value, json};

/// Options for live connections; one that is not named keeps its setting.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct LiveOptions {
    /// Whether those who are subscribed by live connections may ask who else is, and are told who
    /// comes and goes: on, off [default: off]
    #[arg(long, value_name = "ON|OFF", value_parser = on_or_off)]
    presence: Option<bool>,
    /// What becomes of a live connection that reads more slowly than messages come: recover (it
    /// gets all of them, from the log), conflate (it gets the newest message of each key),
    /// disconnect (it is ended with a code, comes back and recovers) [default: recover]
    #[arg(long, value_name = "RULE")]
    when_behind: Option<WhenBehind>,
}

impl LiveOptions {
    /// `live` with these options.
    pub fn apply_to(self, live: LiveSettings) -> LiveSettings {
        LiveSettings {
            presence: self.presence.unwrap_or(live.presence),
            when_behind: self.when_behind.unwrap_or(live.when_behind),
        }
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{text:?} is neither on nor off")),
    }
}

/// The settings in the form of their options: `presence on, conflate`; `None` where they are those of a topic that says
/// nothing of them.
pub fn show_live(live: LiveSettings) -> Option<String> {
    let presence = if live.presence { "on" } else { "off" };
    let is_told = live != LiveSettings::default();
    is_told.then(|| format!("presence {presence}, {}", live.when_behind))
}

/// The settings as JSON.
pub fn live_json(live: LiveSettings) -> Value {
    json!({ "presence": live.presence, "when_behind": live.when_behind.name() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_keeps_its_setting() {
        let held = LiveSettings::OF_CHANNEL;
        assert_eq!(LiveOptions::default().apply_to(held), held);
        let options =
            LiveOptions { presence: Some(false), when_behind: Some(WhenBehind::Conflate) };
        let changed = options.apply_to(held);
        assert_eq!(show_live(changed).as_deref(), Some("presence off, conflate"));
        assert_eq!(show_live(LiveSettings::default()), None);
        assert_eq!(on_or_off("yes").unwrap_err(), "\"yes\" is neither on nor off");
    }
}
