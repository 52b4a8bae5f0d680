//! Scripts decide about messages, keep nothing between two of them, and are told what is wrong with them.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use sennit_hooks::{
    Failure, FailureDecision, InvalidScript, PublishDecision, RewriteError, Script, ScriptError,
    Settings, rewrite,
};
use sennit_model::{Batch, BatchBuilder, Cost, Header, Message, MessageFields, MissingHeader};

fn settings() -> Rc<dyn Settings> {
    Rc::new(|key: &str| (key == "weight.gold").then(|| Bytes::from_static(b"9")))
}

fn script(source: &str) -> Script {
    Script::compile(source, "jobs", &settings()).unwrap_or_else(|error| panic!("{error}: {source}"))
}

fn batch() -> Batch {
    let mut builder = BatchBuilder::new();
    let message = Message {
        key: "order-1".into(),
        headers: vec![Header::text("tenant", "acme"), Header::text("plan", "gold")],
        payload: "{\"to\":\"ann\"}".into(),
        delay: None,
        time_to_live: Some(Duration::from_secs(5)),
    };
    builder.push(&message).expect("it fits");
    builder.take().expect("it has a message")
}

fn published(source: &str) -> Result<PublishDecision, ScriptError> {
    script(source).on_publish(batch().bytes().clone(), 7)
}

/// What an expression is in `on_publish`, as text.
fn value(expression: &str) -> String {
    let source =
        format!("function on_publish(msg) return {{ refuse = tostring({expression}) }} end");
    published(&source)
        .unwrap_or_else(|error| panic!("{expression}: {error}"))
        .refuse
        .expect("it refuses")
}

fn failure_of(source: &str) -> String {
    published(source).expect_err(source).to_string()
}

#[test]
fn a_script_sees_its_message() {
    for (expression, seen) in [
        ("msg.topic", "jobs"),
        ("msg.key", "order-1"),
        ("msg.size", "12"),
        ("msg.producer", "7"),
        ("msg.headers.tenant", "acme"),
        ("msg.headers.missing", "nil"),
        ("msg.payload()", "{\"to\":\"ann\"}"),
        ("msg.payload(3, 4)", "to"),
        ("msg.payload(-2)", "\"}"),
        ("msg.payload(50)", ""),
        ("msg.time_to_live_ms", "5000"),
        ("msg.delay_ms", "nil"),
        ("#msg.header_list()", "2"),
        ("msg.header_list()[2].name .. msg.header_list()[2].value", "plangold"),
        ("config.get('weight.gold')", "9"),
        ("config.get('weight.none')", "nil"),
        ("msg.nothing", "nil"),
    ] {
        assert_eq!(value(expression), seen, "{expression}");
    }
}

#[test]
fn the_library_does_what_that_of_lua_does() {
    for (expression, seen) in [
        ("('a,b,c'):gsub(',', ';')", "a;b;c"),
        ("select(2, ('a,b,c'):gsub(',', ';'))", "2"),
        ("('hello world'):gsub('o', '0', 1)", "hell0 world"),
        ("('hello'):gsub('', '-')", "-h-e-l-l-o-"),
        ("('abc'):gsub('%w', '%0%0')", "aabbcc"),
        ("('k=v'):gsub('(%w)=(%w)', '%2=%1')", "v=k"),
        ("('a b'):gsub('%w', {a = 'x', b = false})", "x b"),
        ("('ab'):gsub('%w', function(c) return c:upper() end)", "AB"),
        ("('aab'):gsub('^a', 'x')", "xab"),
        ("('key=value'):match('^(%w+)=')", "key"),
        ("('key=value'):match('%w+$')", "value"),
        ("('key'):match('()')", "1"),
        ("('key'):match('x')", "nil"),
        ("('a.b'):find('.', 1, true)", "2"),
        ("select('#', ('abc'):find('(b)()'))", "4"),
        ("('abc'):find('c', -1)", "3"),
        ("('x'):rep(3, '-')", "x-x-x"),
        ("('x'):rep(-1)", ""),
        ("('%d:%s'):format(7, 'a')", "7:a"),
        ("('AbC'):lower() .. ('AbC'):upper() .. ('abc'):reverse() .. #'abc'", "abcABCcba3"),
        ("('abc'):byte(-1)", "99"),
        ("table.concat({1, 2, 3}, '+')", "1+2+3"),
        ("select('#', table.unpack({1, nil, 3}, 1, 3))", "3"),
        ("math.max(3, 9) // 2", "4"),
        ("utf8.len('\u{e4}\u{f6}')", "2"),
        ("tonumber('0x10')", "16"),
        ("tonumber('z', 36)", "35"),
        ("type(next)", "function"),
        ("{}", "table"),
    ] {
        assert_eq!(value(expression), seen, "{expression}");
    }
    let iterated = "function on_publish() local out = {}
        for word in ('one two  three'):gmatch('%a+') do table.insert(out, 1, word) end
        table.sort(out)
        table.insert(out, 'end')
        table.remove(out, 1)
        return { refuse = table.concat(out, ' ') }
    end";
    assert_eq!(published(iterated).unwrap().refuse.unwrap(), "three two end");
}

#[test]
fn a_decision_has_the_fields_that_the_script_returns() {
    let decision = published(
        "function on_publish(msg) return {
            fair_key = msg.headers.tenant, weight = config.get('weight.' .. msg.headers.plan),
            priority = 7, cost = 2.0, throttle_keys = { 'smtp', 'acme' }, delay_ms = 1500,
            time_to_live_ms = 60000, headers = { plan = false, region = 'eu', size = msg.size },
        } end",
    );
    let mut decision = decision.unwrap();
    decision.headers.sort();
    let expected = PublishDecision {
        refuse: None,
        fair_key: Some("acme".into()),
        weight: Some(9),
        priority: Some(7),
        cost: Some(2),
        throttle_keys: Some("smtp,acme".into()),
        delay: Some(Duration::from_millis(1500)),
        time_to_live: Some(Duration::from_secs(60)),
        headers: vec![
            ("plan".into(), None),
            ("region".into(), Some("eu".into())),
            ("size".into(), Some("12".into())),
        ],
    };
    assert_eq!(decision, expected);
    let fields = MessageFields {
        fair_key: Some("fair".parse().unwrap()),
        weight: Some("weight".parse().unwrap()),
        priority: Some("priority".parse().unwrap()),
        throttle_keys: Some("limits".parse().unwrap()),
        delay: None,
        cost: Cost::Header("cost".parse().unwrap()),
    };
    let batch = batch();
    let message = batch.messages().next().unwrap();
    let mut builder = BatchBuilder::new();
    rewrite(&message, &decision, Some(&fields), &mut builder).unwrap();
    let rewritten = builder.take().unwrap();
    let message = rewritten.messages().next().unwrap();
    let class = fields.class(&message);
    let keys: Vec<_> = class.throttle_keys().collect();
    assert_eq!((class.fair_key, class.weight, keys), ("acme", 9, vec!["acme", "smtp"]));
    assert_eq!((fields.cost(&message), message.delay()), (2, Some(Duration::from_millis(1500))));
    let names: Vec<_> = message.headers().map(|header| header.unwrap().0).collect();
    assert!(names.contains(&"region") && !names.contains(&"plan"), "{names:?}");
    let without = rewrite(&message, &decision, None, &mut builder).unwrap_err();
    assert!(
        matches!(without, RewriteError::MissingHeader(MissingHeader { field: "fair_key", .. })),
        "{without}"
    );
}

#[test]
fn a_script_that_returns_nothing_changes_nothing() {
    let decision = published("function on_publish(msg) end").unwrap();
    assert!(decision.is_unchanged());
    let (batch, mut builder) = (batch(), BatchBuilder::new());
    rewrite(&batch.messages().next().unwrap(), &decision, None, &mut builder).unwrap();
    assert_eq!(builder.take().unwrap(), batch);
}

#[test]
fn a_failed_attempt_is_retried_later_or_goes_to_the_dead_letters_or_to_another_topic() {
    let script = script(
        "function on_failure(msg)
            if msg.reason == 'gone' then return { dead_letter = 'no such ' .. msg.key } end
            if msg.reason == 'slow' then return { route = msg.topic .. '-slow' } end
            if msg.reason == 'both' then return { route = 'a', dead_letter = 'b' } end
            if msg.attempts < 3 then return { retry_after_ms = msg.attempts * 1000 + msg.age_ms } end
        end",
    );
    assert!(script.has_on_failure() && !script.has_on_publish());
    let tried = |attempts, reason: &str| {
        let (age, reason) = (Duration::from_millis(5), reason.to_owned());
        script.on_failure(batch().bytes().clone(), Failure { attempts, age, reason })
    };
    let decided = |attempts, reason: &str| tried(attempts, reason).unwrap();
    assert_eq!(decided(2, ""), FailureDecision::RetryAfter(Duration::from_millis(2005)));
    assert_eq!(decided(3, ""), FailureDecision::Default);
    assert_eq!(decided(1, "gone"), FailureDecision::DeadLetter("no such order-1".into()));
    assert_eq!(decided(1, "slow"), FailureDecision::Route("jobs-slow".into()));
    let error = tried(1, "both").unwrap_err().to_string();
    assert_eq!(error, "retry_after_ms, dead_letter and route exclude each other");
}

#[test]
fn nothing_is_kept_between_two_messages() {
    for source in [
        "n = 0 function on_publish() n = n + 1 return { refuse = '' .. n } end",
        "local n = 0 function on_publish() n = n + 1 return { refuse = '' .. n } end",
        "local t = {} function on_publish() t[#t + 1] = 1 return { refuse = '' .. #t } end",
    ] {
        let script = script(source);
        for _ in 0..3 {
            let decision = script.on_publish(batch().bytes().clone(), 0).unwrap();
            assert_eq!(decision.refuse.as_deref(), Some("1"), "{source}");
        }
    }
}

#[test]
fn the_library_and_the_message_cannot_be_changed() {
    for (change, what) in [
        ("string.x = 1", "string cannot be changed"),
        ("math.pi = 3", "math cannot be changed"),
        ("table.insert(table, 1)", "table cannot be changed"),
        ("msg.key = 'x'", "a message cannot be changed"),
        ("msg.headers.a = 'x'", "headers cannot be changed"),
        ("config.get = 1", "config cannot be changed"),
        ("local s = 'x' s.y = 1", "attempt to index a string value"),
    ] {
        let failure = failure_of(&format!("function on_publish(msg) {change} end"));
        assert!(failure.contains(what), "{change}: {failure}");
    }
}

#[test]
fn what_would_leave_the_sandbox_is_not_there() {
    for name in [
        "io",
        "os",
        "debug",
        "package",
        "require",
        "load",
        "loadstring",
        "dofile",
        "loadfile",
        "getmetatable",
        "setmetatable",
        "rawget",
        "rawset",
        "rawequal",
        "pcall",
        "xpcall",
        "coroutine",
        "collectgarbage",
        "print",
        "string.dump",
        "string.pack",
        "math.random",
        "table.move",
        "_G",
        "warn",
        "(''):dump",
        "msg.__index",
        "string.__index",
    ] {
        let seen = match name.strip_suffix(":dump") {
            Some(text) => value(&format!("{text}.dump")),
            None => value(name),
        };
        assert_eq!(seen, "nil", "{name}");
    }
    assert!(Script::compile("\x1bLua", "t", &settings()).is_err(), "no bytecode");
}

#[test]
fn a_script_that_is_none_is_refused_with_its_line() {
    let refused = |source: &str| Script::compile(source, "t", &settings()).unwrap_err().to_string();
    assert_eq!(
        refused("function on_publish(msg)\n  local x = = 1\nend"),
        "line 2: unexpected symbol near '='"
    );
    assert_eq!(refused("\n\nerror('no')"), "line 3: no");
    assert_eq!(refused("local x = nil .. 'a'"), "line 1: attempt to concatenate a nil value");
    assert_eq!(refused("x = 1"), "the script defines neither on_publish nor on_failure");
    assert_eq!(refused("on_publish = 1"), "the script defines neither on_publish nor on_failure");
    assert_eq!(
        refused("while true do end"),
        "HOOK_INSTRUCTIONS_MAX is 100000: the script takes more for one message"
    );
    let long = Script::compile(&" ".repeat(40_000), "t", &settings()).unwrap_err();
    assert_eq!(long, InvalidScript::TooLong(40_000));
}

#[test]
fn a_failure_names_the_line_and_the_field() {
    for (body, said) in [
        ("\n local x = msg.headers.none .. ''", "line 2: attempt to concatenate a nil value"),
        ("\n\n error('stop')", "line 3: stop"),
        ("error({})", "an error"),
        ("assert(false, 'so')", "so"),
        ("return 5", "on_publish returns nothing or a table, not a number"),
        ("return { fairkey = 'x' }", "on_publish has returned the unknown field 'fairkey'"),
        ("return { weight = 0 }", "weight is a number from 1 to 1000000, not 0"),
        ("return { weight = {} }", "weight is a whole number, not a table"),
        ("return { priority = 10 }", "priority is a number from 0 to 9, not 10"),
        ("return { delay_ms = -1 }", "delay_ms is a number from 0 to 3153600000000, not -1"),
        ("return { fair_key = ('x'):rep(300) }", "fair_key has at most 256 bytes, not 300"),
        ("return { fair_key = true }", "fair_key is text, not a boolean"),
        ("return { headers = { 'a' } }", "headers: names are expected, as in { name = value }"),
        (
            "return { headers = { a = {} } }",
            "the value of a header is text, a number or false, not a table",
        ),
        ("return ('x'):match('(')", "a capture is not ended"),
        ("return ('x'):rep({})", "a whole number is expected"),
    ] {
        let failure = failure_of(&format!("function on_publish(msg){body} end"));
        let is_said = failure.contains(said) || said == "an error" && !failure.is_empty();
        assert!(is_said, "{body}: {failure}");
    }
}

#[test]
fn a_script_that_takes_too_much_is_ended_and_the_next_message_goes_well() {
    let script = script(
        "function on_publish(msg)
            local what = msg.headers.tenant
            if what == 'loop' then while true do end end
            if what == 'pattern' then return ('a'):rep(5000):find('.-.-.-.-.-b') end
            if what == 'memory' then local s = 'x' while true do s = s .. s end end
            if what == 'depth' then local function f() return 1 + f() end return f() end
            return { refuse = 'fine' }
        end",
    );
    let told = |tenant: &str| {
        let mut builder = BatchBuilder::new();
        let headers = vec![Header::text("tenant", tenant)];
        builder.push(&Message { headers, ..Message::new("x") }).unwrap();
        script.on_publish(builder.take().unwrap().bytes().clone(), 0)
    };
    for (what, said) in [
        ("loop", "HOOK_INSTRUCTIONS_MAX is 100000"),
        ("pattern", "HOOK_INSTRUCTIONS_MAX is 100000"),
        ("memory", "HOOK_MEMORY_BYTES_MAX is 524288"),
        ("depth", "HOOK_MEMORY_BYTES_MAX is 524288"),
    ] {
        for _ in 0..3 {
            let error = told(what).expect_err(what).to_string();
            assert!(error.starts_with(said), "{what}: {error}");
            assert_eq!(told("good").unwrap().refuse.as_deref(), Some("fine"), "after {what}");
        }
    }
}
