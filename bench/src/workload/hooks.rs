//! `hooks`: the cost of a hook for each published message, beside the same load without one.

use super::{Measurement, Method};
use crate::{comparison::Comparison, load::Load, plan::FairKeys, run_topic::TopicFields};

/// Options of `hooks`. Each script runs in turns with the same load without a hook.
#[derive(Clone, Debug, clap::Args)]
pub struct Hooks {
    /// Scripts; may be a list
    #[arg(long, value_enum, default_value = "nothing,fields,text", value_delimiter = ',')]
    scripts: Vec<HookScript>,
    /// Messages of a turn
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    messages: u64,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Clients that publish
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    producers: u32,
    /// How often both run, in turns
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=99))]
    turns: u32,
}

/// A script.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum HookScript {
    /// Returns nothing
    Nothing,
    /// Sets the fair key and the weight from headers
    Fields,
    /// Cuts, matches and joins text, as a script that routes does
    Text,
}

impl HookScript {
    fn row(self) -> &'static str {
        match self {
            Self::Nothing => "a script that returns nothing",
            Self::Fields => "a script that sets fields from headers",
            Self::Text => "a script that works on text",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Self::Nothing => "function on_publish(msg) end",
            Self::Fields => {
                "function on_publish(msg)\n  \
                 return { fair_key = msg.headers.tenant, weight = tonumber(msg.headers.plan) }\n\
                 end"
            }
            Self::Text => {
                "function on_publish(msg)\n  \
                 local number = string.match(msg.headers.tenant, '^tenant%-(%d+)$')\n  \
                 local region = string.upper(string.sub(msg.headers.region, 1, 2))\n  \
                 local parts = { region, 'shard', tonumber(number) % 16 }\n  \
                 local key = table.concat(parts, '-')\n  \
                 if region == 'EU' then key = key .. ':' .. string.gsub(key, 'shard', 's') end\n  \
                 return { fair_key = key, headers = { route = key } }\n\
                 end"
            }
        }
    }
}

impl Hooks {
    /// A row for each script.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        let others = [("plan", "3"), ("region", "eu-central")];
        let others = others.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let base = Load {
            producers: self.producers,
            size: self.size,
            messages: Some(self.messages.div_ceil(u64::from(self.producers))),
            keys: Some(FairKeys { count: 10, others }),
            fields: Some(TopicFields { fair_key: "fair".into(), weight: Some("share".into()) }),
            drain_s: 300.0,
            partitions,
            ..Load::new()
        };
        let row = |script: &HookScript| {
            let load = Load { script: Some(script.source().into()), ..base.clone() };
            let comparison = Comparison {
                base_name: "no hook",
                base: base.clone(),
                load,
                turns: self.turns,
                brings_brokers: false,
            };
            let row = format!("{}, {} B", script.row(), self.size);
            Measurement { row, method: Method::Comparison(Box::new(comparison)) }
        };
        self.scripts.iter().map(row).collect()
    }
}
