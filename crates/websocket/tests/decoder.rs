//! The rules of RFC 6455 and RFC 7692 for what a client sends, each seen from outside: bytes in, messages or a fault out.

use sennit_websocket::{
    Close, CloseCode, Decoder, DecoderLimits, Deflater, End, Fault, FrameHead, Incoming, Inflater,
    Opcode, WindowBits, client, frame,
};

const LIMITS: DecoderLimits = DecoderLimits { message_bytes_max: 1000 };
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A client's frames, one after another.
#[derive(Default)]
struct Frames(Vec<u8>);

impl Frames {
    fn whole(mut self, opcode: Opcode, payload: impl AsRef<[u8]>) -> Self {
        client::put_frame(opcode, payload.as_ref(), MASK, &mut self.0);
        self
    }

    fn part(mut self, is_final: bool, opcode: Opcode, payload: impl AsRef<[u8]>) -> Self {
        let head = FrameHead { is_final, ..FrameHead::whole(opcode, 0) };
        client::put_fragment(head, payload.as_ref(), MASK, &mut self.0);
        self
    }

    fn compressed(mut self, is_final: bool, opcode: Opcode, payload: impl AsRef<[u8]>) -> Self {
        let head = FrameHead { is_final, is_compressed: true, ..FrameHead::whole(opcode, 0) };
        client::put_fragment(head, payload.as_ref(), MASK, &mut self.0);
        self
    }

    /// What a server without compression makes of them.
    fn decoded(&self) -> (Vec<Incoming>, Option<Fault>) {
        decode(&mut Decoder::of_server(LIMITS, false), self.0.chunks(self.0.len().max(1)))
    }

    /// What a server with compression makes of them.
    fn inflated(&self) -> (Vec<Incoming>, Option<Fault>) {
        decode(&mut Decoder::of_server(LIMITS, true), self.0.chunks(self.0.len().max(1)))
    }

    fn fault(&self) -> Option<Fault> {
        self.decoded().1
    }
}

fn decode<'a>(
    decoder: &mut Decoder,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Incoming>, Option<Fault>) {
    let mut inflater = Inflater::new();
    let mut all = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.next(&mut piece, &mut inflater) {
                Ok(Some(incoming)) => all.push(incoming),
                Ok(None) => break,
                Err(fault) => return (all, Some(fault)),
            }
        }
        assert!(piece.is_empty(), "what is not taken would be lost");
    }
    (all, None)
}

fn text(text: &str) -> Incoming {
    Incoming::Text(text.to_owned())
}

#[test]
fn the_masked_example_of_the_rfc_is_hello() {
    let bytes = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    let mut decoder = Decoder::of_server(LIMITS, false);
    assert_eq!(decode(&mut decoder, [&bytes[..]]), (vec![text("Hello")], None));
    assert_eq!(Frames::default().whole(Opcode::Text, "Hello").0, bytes);
}

#[test]
fn the_fragmented_example_of_the_rfc_is_one_message() {
    let frames =
        Frames::default().part(false, Opcode::Text, "Hel").part(true, Opcode::Continuation, "lo");
    assert_eq!(frames.decoded(), (vec![text("Hello")], None));
}

#[test]
fn frames_of_any_length_are_messages() {
    for bytes in [0, 1, 125, 126, 127, 128, 1000] {
        let message = vec![0xfe; bytes];
        let frames = Frames::default().whole(Opcode::Binary, &message);
        assert_eq!(frames.decoded(), (vec![Incoming::Binary(message)], None));
    }
}

#[test]
fn many_messages_of_one_read_come_in_order() {
    let frames = Frames::default()
        .whole(Opcode::Text, "a")
        .whole(Opcode::Ping, "p")
        .whole(Opcode::Binary, "b")
        .whole(Opcode::Pong, "");
    let all = vec![
        text("a"),
        Incoming::Ping(b"p".to_vec()),
        Incoming::Binary(b"b".to_vec()),
        Incoming::Pong(Vec::new()),
    ];
    assert_eq!(frames.decoded(), (all, None));
}

#[test]
fn control_frames_lie_between_the_parts_of_a_message() {
    let frames = Frames::default()
        .part(false, Opcode::Text, "κ")
        .whole(Opcode::Ping, "1")
        .part(false, Opcode::Continuation, "")
        .whole(Opcode::Pong, "2")
        .part(true, Opcode::Continuation, "σ");
    let all = vec![Incoming::Ping(b"1".to_vec()), Incoming::Pong(b"2".to_vec()), text("κσ")];
    assert_eq!(frames.decoded(), (all, None));
}

#[test]
fn a_continuation_needs_a_message_and_a_message_needs_its_end() {
    let lonely = Frames::default().part(true, Opcode::Continuation, "x");
    assert_eq!(lonely.fault(), Some(Fault::NothingToContinue));
    let after_the_end =
        Frames::default().whole(Opcode::Text, "whole").part(false, Opcode::Continuation, "x");
    assert_eq!(after_the_end.decoded(), (vec![text("whole")], Some(Fault::NothingToContinue)));
    let unfinished =
        Frames::default().part(false, Opcode::Text, "x").whole(Opcode::Text, "another");
    assert_eq!(unfinished.fault(), Some(Fault::MessageUnfinished));
}

#[test]
fn text_is_utf8_and_a_character_may_lie_in_two_frames() {
    let (first, second) = "κόσμε".as_bytes().split_at(3);
    let split =
        Frames::default().part(false, Opcode::Text, first).part(true, Opcode::Continuation, second);
    assert_eq!(split.decoded(), (vec![text("κόσμε")], None));
    let wrong = Frames::default().whole(Opcode::Text, b"\xce\xba\xff");
    assert_eq!(wrong.fault(), Some(Fault::NotUtf8));
    let cut = Frames::default().whole(Opcode::Text, b"\xce");
    assert_eq!(cut.fault(), Some(Fault::NotUtf8));
    let bytes = Frames::default().whole(Opcode::Binary, b"\xff");
    assert_eq!(bytes.decoded(), (vec![Incoming::Binary(vec![0xff])], None));
}

#[test]
fn wrong_text_is_refused_before_its_frame_or_message_ends() {
    let in_the_first_frame = Frames::default().part(false, Opcode::Text, b"\xed\xa0\x80");
    assert_eq!(in_the_first_frame.fault(), Some(Fault::NotUtf8));
    let frames = Frames::default().whole(Opcode::Text, b"ab\xffmuch more that does not come");
    let mut decoder = Decoder::of_server(LIMITS, false);
    let outcome = decode(&mut decoder, frames.0[..9].chunks(1));
    assert_eq!(outcome, (Vec::new(), Some(Fault::NotUtf8)), "with the third byte of the payload");
}

#[test]
fn a_message_beyond_the_limit_is_refused_when_it_is_announced() {
    let large = Fault::MessageTooLarge { bytes_max: 1000 };
    let mut head = Vec::new();
    let mask = Some(MASK);
    FrameHead { mask, ..FrameHead::whole(Opcode::Binary, 1001) }.put(&mut head);
    let mut decoder = Decoder::of_server(LIMITS, false);
    assert_eq!(decode(&mut decoder, [&head[..]]), (Vec::new(), Some(large)));
    let in_parts = Frames::default()
        .part(false, Opcode::Binary, [0; 600])
        .part(false, Opcode::Continuation, [0; 400])
        .part(false, Opcode::Continuation, [0; 1]);
    assert_eq!(in_parts.fault(), Some(large));
    let unmeasured =
        FrameHead { mask, payload_len: (1 << 63) - 1, ..FrameHead::whole(Opcode::Text, 0) };
    head.clear();
    unmeasured.put(&mut head);
    let mut decoder = Decoder::of_server(DecoderLimits { message_bytes_max: usize::MAX }, true);
    assert_eq!(decode(&mut decoder, [&head[..]]), (Vec::new(), None));
    assert!(decoder.held_bytes() < 512, "an announced length takes no memory");
}

#[test]
fn a_close_says_why_or_nothing() {
    let frames = Frames::default().whole(Opcode::Close, "");
    assert_eq!(frames.decoded(), (vec![Incoming::Close(Close::default())], None));
    let mut frames = Frames::default();
    client::put_close(CloseCode::GOING_AWAY, "bye", MASK, &mut frames.0);
    let close = Close { code: Some(CloseCode::GOING_AWAY), reason: "bye".into() };
    assert_eq!(frames.decoded(), (vec![Incoming::Close(close)], None));
}

#[test]
fn a_close_is_well_formed() {
    let close = |payload: &[u8]| Frames::default().whole(Opcode::Close, payload).fault();
    assert_eq!(close(&[3]), Some(Fault::CloseOfOneByte));
    for number in [0_u16, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535] {
        assert_eq!(close(&number.to_be_bytes()), Some(Fault::CloseCode(number)));
    }
    assert_eq!(close(b"\x03\xe8\xff"), Some(Fault::NotUtf8));
}

#[test]
fn nothing_is_decoded_behind_a_close_or_a_fault() {
    let closed = Frames::default().whole(Opcode::Close, "").whole(Opcode::Text, "late");
    assert_eq!(closed.decoded().0.len(), 1);
    let mut decoder = Decoder::of_server(LIMITS, false);
    let broken = Frames::default().part(true, Opcode::Continuation, "");
    assert!(decode(&mut decoder, [&broken.0[..]]).1.is_some());
    assert!(decoder.has_ended());
    assert_eq!(decode(&mut decoder, [&closed.0[..]]), (Vec::new(), None));
}

#[test]
fn faults_have_the_codes_of_the_rfc() {
    assert_eq!(Fault::NotUtf8.close_code().number(), 1007);
    assert_eq!(Fault::NotDeflate.close_code().number(), 1007);
    assert_eq!(Fault::MessageTooLarge { bytes_max: 1 }.close_code().number(), 1009);
    assert_eq!(Fault::NotMasked.close_code().number(), 1002);
    assert_eq!(Fault::CloseCode(999).close_code().number(), 1002);
}

#[test]
fn a_client_reads_what_a_server_sends() {
    let mut bytes = Vec::new();
    frame::put_frame(Opcode::Text, b"plain", &mut bytes);
    let long = "again and again ".repeat(20);
    assert!(Deflater::new().put_frame(Opcode::Text, long.as_bytes(), WindowBits::MAX, &mut bytes));
    frame::put_close(CloseCode::SERVICE_RESTART, "back soon", &mut bytes);
    let close = Close { code: Some(CloseCode::SERVICE_RESTART), reason: "back soon".into() };
    let all = vec![text("plain"), text(&long), Incoming::Close(close)];
    let mut decoder = Decoder::of_client(LIMITS, true);
    assert_eq!(decode(&mut decoder, bytes.chunks(3)), (all, None));
    let masked = Frames::default().whole(Opcode::Text, "x");
    let mut decoder = Decoder::of_client(LIMITS, true);
    assert_eq!(decode(&mut decoder, [&masked.0[..]]), (Vec::new(), Some(Fault::Masked)));
    assert_ne!(End::Client, End::Server);
}

const HELLO: [u8; 7] = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];

#[test]
fn a_compressed_message_may_come_in_parts() {
    let whole = Frames::default().compressed(true, Opcode::Text, HELLO);
    assert_eq!(whole.inflated(), (vec![text("Hello")], None));
    let in_parts = Frames::default()
        .compressed(false, Opcode::Text, &HELLO[..3])
        .whole(Opcode::Ping, "")
        .part(true, Opcode::Continuation, &HELLO[3..]);
    assert_eq!(in_parts.inflated(), (vec![Incoming::Ping(Vec::new()), text("Hello")], None));
}

#[test]
fn compressed_and_plain_messages_may_alternate() {
    let frames = Frames::default()
        .whole(Opcode::Text, "plain")
        .compressed(true, Opcode::Text, HELLO)
        .whole(Opcode::Text, "plain");
    assert_eq!(frames.inflated(), (vec![text("plain"), text("Hello"), text("plain")], None));
}

#[test]
fn compression_that_was_not_negotiated_is_refused() {
    let frames = Frames::default().compressed(true, Opcode::Text, HELLO);
    assert_eq!(frames.fault(), Some(Fault::ReservedBit));
    let in_the_second = Frames::default().compressed(false, Opcode::Text, "").compressed(
        true,
        Opcode::Continuation,
        "",
    );
    assert_eq!(in_the_second.inflated().1, Some(Fault::ReservedBit));
}

#[test]
fn a_bomb_ends_at_the_limit() {
    let mut deflater = Deflater::new();
    let zeros = vec![0; 1 << 20];
    let bomb = deflater.deflate(&zeros, WindowBits::MAX).expect("zeros are compressible").to_vec();
    // About a thousandth, but beyond what a message of the limit could have: refused as it comes.
    let small: Vec<u8> =
        deflater.deflate(&zeros[..100_000], WindowBits::MAX).expect("compressible").to_vec();
    assert!(small.len() < 1000 && bomb.len() > 1000);
    let large = Some(Fault::MessageTooLarge { bytes_max: 1000 });
    for payload in [bomb, small] {
        let frames = Frames::default().compressed(true, Opcode::Binary, payload);
        assert_eq!(frames.inflated(), (Vec::new(), large));
    }
    let exact = deflater.deflate(&zeros[..1000], WindowBits::MAX).expect("compressible").to_vec();
    let frames = Frames::default().compressed(true, Opcode::Binary, exact);
    assert_eq!(frames.inflated(), (vec![Incoming::Binary(vec![0; 1000])], None));
    let one_more =
        deflater.deflate(&zeros[..1001], WindowBits::MAX).expect("compressible").to_vec();
    let frames = Frames::default().compressed(true, Opcode::Binary, one_more);
    assert_eq!(frames.inflated(), (Vec::new(), large));
}

#[test]
fn inflated_text_is_utf8() {
    let wrong = [0x00, 0x01, 0x00, 0xfe, 0xff, 0xff];
    let frames = Frames::default().compressed(true, Opcode::Text, wrong);
    assert_eq!(frames.inflated(), (Vec::new(), Some(Fault::NotUtf8)));
    let garbage = Frames::default().compressed(true, Opcode::Text, [0xff; 8]);
    assert_eq!(garbage.inflated(), (Vec::new(), Some(Fault::NotDeflate)));
}

#[test]
fn a_connection_between_messages_keeps_no_buffer() {
    assert!(size_of::<Decoder>() <= 32, "{}", size_of::<Decoder>());
    let mut decoder = Decoder::of_server(LIMITS, true);
    let frames = Frames::default().part(false, Opcode::Text, [b'x'; 500]).part(
        true,
        Opcode::Continuation,
        [b'y'; 500],
    );
    let (first, rest) = frames.0.split_at(700);
    decode(&mut decoder, [first]);
    assert!(decoder.is_in_message() && decoder.held_bytes() <= 1000 + 300);
    let (all, fault) = decode(&mut decoder, [rest]);
    assert_eq!((all.len(), fault), (1, None));
    assert_eq!((decoder.held_bytes(), decoder.is_in_message()), (0, false));
}
