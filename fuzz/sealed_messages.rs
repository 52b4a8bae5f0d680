//! Seeds of the target `sealed`: a message, in both forms and cut, and a file of keys.

use sennit_seal::{Key, KeyKind, KeyRing, Sealer};

use crate::write;

pub fn write_all() {
    let keys = "sennit-channel-key:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let ring = KeyRing::from_text(keys).expect("it is a key");
    let sealer = Sealer::new(&ring).expect("it has a channel key");
    let message = sealer.seal("news", b"hello", 7).expect("it has room");
    write("sealed", "channel", &message);
    write("sealed", "channel-cut", &message[..30]);
    write("sealed", "json", sennit_seal::text_of(&message).as_bytes());
    let mut all = KeyRing::default();
    for kind in KeyKind::ALL {
        let key = Key::generate(kind).expect("there are random numbers");
        if let Some(public) = key.public() {
            let to = KeyRing::from_text(&public.to_text()).expect("it is a key");
            if let Ok(sealer) = Sealer::new(&to) {
                let message = sealer.seal("news", b"hello", 7).expect("it has room");
                write("sealed", "recipient", &message);
            }
        }
        all.add(key, "label").expect("there is room");
    }
    write("sealed", "keys", all.to_text().as_bytes());
}
