//! Which fault a client is told of where a body has several.

use sennit_model::TopicName;
use sennit_protocol::ErrorCode;

use super::*;

const RESERVED: &str = "__ds/subscriptions";
const BAD: &str = "no name";

fn fault(request: Request) -> RequestFault {
    control_request(&request).expect_err("it has a fault")
}

fn code(request: Request) -> Option<ErrorCode> {
    control::Error::from(&fault(request)).error_code()
}

fn bad_config() -> Option<control::TopicConfig> {
    Some(control::TopicConfig { partitions: Some(0), ..<_>::default() })
}

fn create_topic(name: &str) -> Request {
    Request::CreateTopic(control::CreateTopic {
        name: name.into(),
        config: bad_config(),
        beside: None,
    })
}

fn alter_topic(name: &str) -> Request {
    Request::AlterTopic(control::AlterTopic { name: name.into(), config: bad_config() })
}

fn delete_group(topic: &str) -> Request {
    Request::DeleteGroup(control::DeleteGroup { topic: topic.into(), name: BAD.into() })
}

#[test]
fn that_a_topic_is_reserved_is_said_before_all_else() {
    for request in [create_topic(RESERVED), alter_topic(RESERVED), delete_group(RESERVED)] {
        assert_eq!(fault(request), RequestFault::Reserved);
    }
    let create_group = control::CreateGroup {
        topic: RESERVED.into(),
        name: BAD.into(),
        config: Some(control::GroupConfig { attempts_max: Some(0), ..<_>::default() }),
        ..<_>::default()
    };
    assert_eq!(code(Request::CreateGroup(create_group)), Some(ErrorCode::TopicReserved));
}

#[test]
fn a_new_topic_is_told_of_its_name_first_and_one_that_changes_of_its_settings() {
    assert_eq!(code(create_topic(BAD)), Some(ErrorCode::InvalidName));
    assert_eq!(code(create_topic("orders")), Some(ErrorCode::InvalidConfig));
    assert_eq!(code(alter_topic(BAD)), Some(ErrorCode::InvalidConfig));
}

#[test]
fn a_new_group_is_told_of_its_name_before_its_settings_and_of_its_topic_last() {
    let bad_config = Some(control::GroupConfig { attempts_max: Some(0), ..<_>::default() });
    let create = |topic: &str, name: &str, config| {
        let (topic, name) = (topic.into(), name.into());
        Request::CreateGroup(control::CreateGroup { topic, name, config, start: None })
    };
    let faults = [
        (create("no topic", "no group", bad_config.clone()), "no group"),
        (create("no topic", "mail", None), "no topic"),
    ];
    for (request, named) in faults {
        let error = control::Error::from(&fault(request));
        assert_eq!(error.error_code(), Some(ErrorCode::InvalidName));
        assert!(error.message.contains(named), "{}", error.message);
    }
    let request = create("no topic", "mail", bad_config);
    assert_eq!(code(request), Some(ErrorCode::InvalidConfig));
}

#[test]
fn of_a_bad_name_of_a_group_a_client_is_told_only_where_the_topic_exists() {
    let RequestFault::IfAccepted(request, _) = fault(delete_group("orders")) else {
        panic!("the topic may not exist");
    };
    let topic: TopicName = "orders".parse().expect("it is a name");
    assert_eq!(*request, ControlRequest::ListGroups { topic });
}

#[test]
fn of_a_bad_name_of_a_cursor_a_reader_is_told_only_where_the_topic_is_the_one_it_means() {
    let read = control::Read {
        topic: "orders".into(),
        topic_id: Some(7),
        cursor: Some(BAD.into()),
        positions: vec![control::ReadPosition { partition: 9, offset: 1 }],
        ..<_>::default()
    };
    let RequestFault::IfAccepted(request, _) = fault(Request::Read(read)) else {
        panic!("the topic may not exist");
    };
    let ControlRequest::Read(read) = *request else { panic!("it is about the same topic") };
    assert_eq!((read.topic_id, read.cursor), (Some(TopicId(7)), None));
    // A partition that does not exist is told of after the name.
    assert!(read.positions.is_empty());
}

fn question(subject: Option<control::explain::Subject>) -> control::Explain {
    let (topic, group) = ("jobs".into(), "default".into());
    control::Explain { topic, group, partition: None, subject }
}

#[test]
fn a_question_needs_an_offset_or_a_key_that_a_message_may_have() {
    use control::explain::Subject;
    assert_eq!(explain(&question(None)), Err(RequestFault::NoSubject));
    let key = "k".repeat(FAIR_KEY_BYTES_MAX);
    let asked = explain(&question(Some(Subject::FairKey(key.clone()))));
    assert_eq!(asked.map(|asked| asked.subject), Ok(ExplainSubject::FairKey(key.clone())));
    let long = explain(&question(Some(Subject::FairKey(key + "k"))));
    assert_eq!(long, Err(RequestFault::LongFairKey(FAIR_KEY_BYTES_MAX + 1)));
}

#[test]
fn a_listing_has_a_default_and_a_most() {
    let list = |most| {
        let (topic, group) = ("jobs".into(), "default".into());
        match list_fair_keys(&control::ListFairKeys { topic, group, most }) {
            Ok(ControlRequest::ListFairKeys { most, .. }) => Ok(most),
            Ok(other) => panic!("{other:?}"),
            Err(fault) => Err(fault),
        }
    };
    assert_eq!(list(0), Ok(FAIR_KEYS_LISTED_DEFAULT));
    assert_eq!(list(1000), Ok(FAIR_KEYS_LISTED_MAX));
    assert_eq!(list(1001), Err(RequestFault::ManyFairKeys(1001)));
    let error = control::Error::from(&RequestFault::ManyFairKeys(1001));
    assert!(error.message.contains("FAIR_KEYS_LISTED_MAX, 1000"), "{}", error.message);
}
