//! Hostile scripts: each of them ends within its budget, none leaves the sandbox, and none harms what runs after it.
//! `SENNIT_HOSTILE_SCRIPTS` says how many are made, `SENNIT_SEED` from which seed.

use std::rc::Rc;

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use sennit_hooks::{Script, Settings};
use sennit_model::{BatchBuilder, Header, Message, limits::HOOK_TIME_MAX};

/// A script may run over its time by what its last instructions take.
const OVER: u32 = 12;

/// Random numbers by a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).expect("it is small")
    }

    fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "3",
    "255",
    "4096",
    "100000",
    "1e9",
    "2^53",
    "math.huge",
    "-math.huge",
    "0/0",
    "math.maxinteger",
    "math.mininteger",
];

const FUNCTIONS: [&str; 34] = [
    "string.rep",
    "string.find",
    "string.match",
    "string.gmatch",
    "string.gsub",
    "string.format",
    "string.byte",
    "string.char",
    "string.lower",
    "string.upper",
    "string.reverse",
    "string.sub",
    "string.len",
    "table.concat",
    "table.insert",
    "table.remove",
    "table.sort",
    "table.unpack",
    "table.pack",
    "tostring",
    "tonumber",
    "ipairs",
    "pairs",
    "next",
    "select",
    "error",
    "assert",
    "type",
    "utf8.char",
    "utf8.codepoint",
    "utf8.len",
    "utf8.offset",
    "config.get",
    "msg.payload",
];

const ATOMS: [&str; 22] = [
    ".", ".-", ".*", "a", "a*", "a-", "a+", "(a", ")", "(.-)", "()", "%1", "%2", "%b()", "%f[%w]",
    "[^a]", "[a-z]", "[", "%", "$", "^", "(a*)*",
];

fn pattern(dice: &mut Dice) -> String {
    let count = 1 + dice.roll(12);
    let atoms: String = (0..count).map(|_| dice.one_of(&ATOMS)).collect();
    format!("'{atoms}'")
}

fn expression(dice: &mut Dice, depth: usize) -> String {
    if depth == 0 {
        return match dice.roll(8) {
            0..3 => dice.one_of(&NUMBERS).to_owned(),
            3 => "s".to_owned(),
            4 => "t".to_owned(),
            5 => "'aaaaaaaaaaaaaaaaaaaaaaaa'".to_owned(),
            6 => pattern(dice),
            _ => dice
                .one_of(&["nil", "true", "msg", "msg.headers", "string", "f", "msg.key", "_ENV"])
                .to_owned(),
        };
    }
    let deeper = |dice: &mut Dice| expression(dice, depth - 1);
    match dice.roll(12) {
        0..6 => {
            let function = dice.one_of(&FUNCTIONS);
            let count = dice.roll(5);
            let arguments: Vec<_> = (0..count).map(|_| deeper(dice)).collect();
            format!("{function}({})", arguments.join(", "))
        }
        6 => format!("({}):rep({})", deeper(dice), dice.one_of(&NUMBERS)),
        7 => format!(
            "(s):gsub({}, function(...) {} return s end)",
            pattern(dice),
            statement(dice, 1)
        ),
        8 => format!("(s):find({})", pattern(dice)),
        9 => format!("({} .. {})", deeper(dice), deeper(dice)),
        10 => format!("{{{}, {}, x = {}}}", deeper(dice), deeper(dice), deeper(dice)),
        _ => format!("(function(...) return {} end)({})", deeper(dice), deeper(dice)),
    }
}

fn statement(dice: &mut Dice, depth: usize) -> String {
    let value = expression(dice, depth.min(3));
    if depth == 0 {
        return format!("t[#t + 1] = {value} ");
    }
    let body = statement(dice, depth - 1);
    match dice.roll(16) {
        0 => format!("while true do {body} end "),
        1 => format!("for i = 1, {} do {body} end ", dice.one_of(&NUMBERS)),
        2 => format!("repeat {body} until false "),
        3 => "do local function g(n) return 1 + g(n + 1) end g(1) end ".to_owned(),
        4 => format!("do local function g(...) {body} return g(s, ...) end g(1) end "),
        5 => "s = s .. s ".to_owned(),
        6 => "while true do s = s .. 'aaaaaaaaaaaaaaaa' end ".to_owned(),
        7 => "while true do t = { t, s } end ".to_owned(),
        8 => format!("for k, v in pairs({value}) do {body} end "),
        9 => "setmetatable(t, { __gc = f, __index = f, __close = f }) ".to_owned(),
        10 => format!("pcall(function() {body} end) "),
        11 => format!("coroutine.wrap(function() {body} end)() "),
        12 => format!("error({value}) "),
        13 => format!("t[{value}] = {value} {body}"),
        14 => format!("table.sort(t, function(a, b) {body} return true end) "),
        _ => format!("{body}{}", statement(dice, depth - 1)),
    }
}

fn hostile(dice: &mut Dice) -> String {
    let depth = dice.roll(5);
    let s = match dice.roll(4) {
        0 => "('a'):rep(50000)",
        1 => "('ab('):rep(3000)",
        2 => "msg.payload()",
        _ => "'aaa'",
    };
    let body = statement(dice, depth);
    let result = expression(dice, 2);
    let source = format!(
        "function on_publish(msg) local s, t = {s}, {{}} local function f(...) return ... end
        {body} return {result} end"
    );
    match dice.roll(20) {
        0 => format!("{} {source}", body.replace("msg", "nil")),
        1 => source.chars().take(dice.roll(source.len())).collect(),
        2 => format!("{}{source}", "(".repeat(dice.roll(2000))),
        3 => format!("local x = {}1 {source}", "-".repeat(dice.roll(400)).replace("--", "- -")),
        _ => source,
    }
}

#[test]
fn hostile_scripts_end_within_their_budgets() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let count: u64 = number("SENNIT_HOSTILE_SCRIPTS").unwrap_or(3000);
    let seed: u64 = number("SENNIT_SEED").unwrap_or(0x5eed);
    println!("{count} hostile scripts, SENNIT_SEED={seed}");
    let settings: Rc<dyn Settings> = Rc::new(|_: &str| Some(Bytes::from_static(b"value")));
    let mut builder = BatchBuilder::new();
    let headers = vec![Header::text("tenant", "acme")];
    builder.push(&Message { headers, ..Message::new(vec![b'a'; 60_000]) }).expect("it fits");
    let message = builder.take().expect("there is one").bytes().clone();
    let good = "function on_publish(msg) return { fair_key = msg.headers.tenant } end";
    let good = Script::compile(good, "good", &settings).expect("it is one");
    let (mut invalid, mut failed, mut ended, mut longest) = (0, 0, 0, std::time::Duration::ZERO);
    for at in 0..count {
        let mut dice = Dice((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (at + 1)).max(1));
        for _ in 0..8 {
            dice.roll(2);
        }
        let source = hostile(&mut dice);
        let begun = thread_time();
        match Script::compile(&source, "hostile", &settings) {
            Err(_) => invalid += 1,
            Ok(script) => match script.on_publish(message.clone(), 1) {
                Err(_) => failed += 1,
                Ok(_) => ended += 1,
            },
        }
        let took = thread_time() - begun;
        longest = longest.max(took);
        assert!(took < HOOK_TIME_MAX * OVER, "{took:?}, seed {seed}, number {at}:\n{source}");
        let decision = good.on_publish(message.clone(), 1).expect("others go on");
        assert_eq!(decision.fair_key.as_deref(), Some("acme"));
    }
    println!("{invalid} invalid, {failed} failed, {ended} ended, the longest took {longest:?}");
    assert!(failed > count / 4 && ended > 0, "{invalid} invalid, {failed} failed, {ended} ended");
}

fn thread_time() -> std::time::Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (now.tv_sec, now.tv_nsec);
    std::time::Duration::new(
        u64::try_from(seconds).expect("it is positive"),
        u32::try_from(nanoseconds).expect("it is less than a second"),
    )
}
