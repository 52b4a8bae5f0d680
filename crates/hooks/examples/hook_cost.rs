//! Measures what a script that takes its fields from headers costs for each message:
//! `cargo run --release -p sennit-hooks --example hook_cost`.

#![expect(clippy::print_stdout, reason = "it is what it prints")]

use std::{rc::Rc, time::Instant};

use bytes::Bytes;
use sennit_hooks::{Script, Settings, rewrite};
use sennit_model::{BatchBuilder, Header, Message, MessageFields};

const SCRIPT: &str = "
function on_publish(msg)
  return {
    fair_key = msg.headers.tenant,
    weight = msg.headers.plan == 'gold' and 10 or 1,
  }
end";

const NOTHING: &str = "function on_publish(msg) end";

fn main() {
    let settings: Rc<dyn Settings> = Rc::new(|_: &str| None::<Bytes>);
    let message = Message {
        key: "order-1".into(),
        headers: ["region", "tenant", "plan"].map(|name| Header::text(name, "gold")).into(),
        payload: vec![7; 1024].into(),
        ..Message::default()
    };
    let mut builder = BatchBuilder::new();
    builder.push(&message).expect("it fits");
    let batch = builder.take().expect("there is one");
    let fields = MessageFields {
        fair_key: Some("fair-key".parse().expect("it is a name")),
        weight: Some("weight".parse().expect("it is a name")),
        ..MessageFields::default()
    };
    for (name, source) in [("nothing", NOTHING), ("fields from headers", SCRIPT)] {
        let script = Script::compile(source, "jobs", &settings).expect("it is one");
        let mut times = [0.0; 5];
        for time in &mut times {
            const MESSAGES: u32 = 200_000;
            let begun = Instant::now();
            for _ in 0..MESSAGES / 100 {
                for _ in 0..100 {
                    let decision = script.on_publish(batch.bytes().clone(), 1).expect("it ends");
                    let message = batch.messages().next().expect("there is one");
                    rewrite(&message, &decision, Some(&fields), &mut builder).expect("it fits");
                }
                drop(builder.take());
            }
            *time = begun.elapsed().as_secs_f64() * 1e9 / f64::from(MESSAGES);
        }
        times.sort_by(f64::total_cmp);
        println!("{name}: {:.0} ns a message, median of 5", times[2]);
    }
}
