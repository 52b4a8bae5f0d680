//! What is decoded encodes and decodes to the same, for messages made at random.

use bytes::Bytes;
use proptest::prelude::*;

use super::vectors::put_from_server;
use crate::*;

const WIDE: Limits = Limits {
    message_bytes_max: 1 << 20,
    commands_max: 1 << 10,
    depth_max: 100,
    entries_max: 1 << 10,
};

fn encodings() -> impl Strategy<Value = Encoding> {
    prop_oneof![Just(Encoding::Json), Just(Encoding::Protobuf)]
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        Just(Data::default()),
        proptest::collection::vec(any::<u8>(), 1..40).prop_map(|b| Data::of_payload(b.into())),
        "[a-z\"\\\\\n\u{1F600}]{1,20}".prop_map(|text| Data::of_payload(Bytes::from(text))),
        any::<i64>().prop_map(|n| Data::of_payload(Bytes::from(format!("{{\n \"n\": {n} }}")))),
    ]
}

prop_compose! {
    fn infos()(user in ".{0,9}", client in ".{0,9}", connection_data in data(), channel_data in data()) -> ClientInfo {
        ClientInfo { user, client, connection_data, channel_data }
    }
}

prop_compose! {
    fn publications()(
        data in data(), info in proptest::option::of(infos()), offset in any::<u64>(),
        tags in proptest::collection::btree_map(".{0,5}", ".{0,5}", 0..3), time_ms in any::<i64>(),
        channel in ".{0,5}", epoch in ".{0,5}",
    ) -> Publication {
        Publication { data, info, offset, tags, time_ms, channel, epoch }
    }
}

fn sent() -> impl Strategy<Value = FromServer> {
    let subscribed = (
        proptest::collection::vec(publications(), 0..4),
        any::<(bool, u32, bool, bool, u64, bool, bool)>(),
        ".{0,5}",
        data(),
    )
        .prop_map(|(publications, flags, epoch, data)| SubscribeResult {
            expires: flags.0,
            ttl_s: flags.1,
            recoverable: flags.2,
            epoch,
            publications,
            recovered: flags.3,
            offset: flags.4,
            positioned: flags.5,
            data,
            was_recovering: flags.6,
        });
    let answers =
        prop_oneof![
            subscribed.prop_map(|result| Ok(Answer::Subscribe(result))),
            proptest::collection::btree_map(".{0,5}", infos(), 0..4)
                .prop_map(|presence| Ok(Answer::Presence(PresenceResult { presence }))),
            (any::<(u32, bool)>(), ".{0,9}").prop_map(|((code, temporary), message)| Err(
                ReplyError { code, message, temporary }
            )),
        ];
    prop_oneof![
        Just(FromServer::Ping),
        (any::<u32>(), answers).prop_map(|(id, result)| FromServer::Reply(Reply { id, result })),
        (".{0,9}", publications()).prop_map(|(channel, publication)| FromServer::Push(Push {
            channel,
            kind: PushKind::Publication(publication)
        })),
    ]
}

proptest! {
    #[test]
    fn what_is_sent_is_read_and_sent_the_same(
        encoding in encodings(),
        messages in proptest::collection::vec(sent(), 0..4),
    ) {
        let mut first = Vec::new();
        for message in &messages {
            put_from_server(encoding, message, &mut first);
        }
        let read: Vec<_> = decode_replies(encoding, &first, WIDE).collect::<Result<_, _>>()?;
        prop_assert_eq!(read.len(), messages.len());
        let mut again = Vec::new();
        for message in &read {
            put_from_server(encoding, message, &mut again);
        }
        let read_again: Vec<_> = decode_replies(encoding, &again, WIDE).collect::<Result<_, _>>()?;
        prop_assert_eq!(&read, &read_again);
        prop_assert_eq!(first, again);
    }

    #[test]
    fn no_bytes_break_the_decoders(
        encoding in encodings(),
        message in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = decode_commands(encoding, &message, Limits::default()).count();
        let _ = decode_replies(encoding, &message, Limits::default()).count();
        let _ = EmulationRequest::decode(encoding, &message, Limits::default());
    }
}
