//! The application behind live connections, over real sockets: it says who a client is, whether it may subscribe and publish, and
//! answers calls; it may be away.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
};

use sennit_centrifuge::{
    Answer, ChannelRequest, ConnectRequest, ConnectResult, Data, Encoding, ErrorCode, Request,
    RpcRequest, SubscribeRequest,
};
use sennit_server::{BackendAsk, Config, LiveBackend};
use sennit_websocket::CloseCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    access_matrix::now_ms,
    live_client::LiveClient,
    tokens,
    world::{Broker, config, until},
};

/// A request that the application was sent: its head and its body.
#[derive(Clone, Debug)]
struct Asked {
    head: String,
    body: Value,
}

/// An application that answers each request by a function of its path and body.
struct Application {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Application {
    fn start(answer: impl Fn(&str, &Value) -> Option<Value> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = asked.clone();
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
                let lower = head.to_ascii_lowercase();
                let length = lower.split("content-length: ").nth(1).unwrap();
                let length = length.lines().next().unwrap().parse().unwrap();
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let body: Value = serde_json::from_slice(&body).unwrap();
                let path = head.split(' ').nth(1).unwrap().to_owned();
                noted.lock().unwrap().push(Asked { head, body: body.clone() });
                let (status, text) = match answer(&path, &body) {
                    Some(answer) => ("200 OK", answer.to_string()),
                    None => ("500 Internal Server Error", String::new()),
                };
                let length = text.len();
                let _ = write!(
                    reader.get_mut(),
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{text}"
                );
            }
        });
        Self { address, asked }
    }

    fn settings(&self) -> LiveBackend {
        LiveBackend {
            url: Some(format!("http://{}/live", self.address).parse().unwrap()),
            asks: vec![BackendAsk::Connect, BackendAsk::Refresh, BackendAsk::Rpc],
            subscribe: vec!["private.>".parse().unwrap()],
            publish: vec!["chat.>".parse().unwrap()],
            ..LiveBackend::default()
        }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn broker(application: &Application) -> (Broker, TempDir) {
    let folder = TempDir::new().unwrap();
    let live_backend = application.settings();
    (Broker::start(Config { live_backend, ..config(folder.path()) }), folder)
}

/// When it is so many seconds later, in seconds since 1970.
fn in_seconds(seconds: u64) -> u64 {
    now_ms() / 1000 + seconds
}

fn data(text: &str) -> Data {
    Data::of_payload(text.to_owned().into_bytes().into())
}

fn connected(client: &mut LiveClient, said: &str) -> ConnectResult {
    let request = ConnectRequest { data: data(said), name: "test".into(), ..<_>::default() };
    match client.ask(Request::Connect(request)) {
        Ok(Answer::Connect(result)) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_application_says_who_a_client_is_and_what_others_see() {
    let application = Application::start(|path, body| {
        assert_eq!(path, "/live/connect");
        let name = body["data"]["name"].as_str().unwrap();
        Some(json!({"result": {"user": name, "info": {"full": name}, "data": {"hello": name}}}))
    });
    let (broker, _folder) = broker(&application);
    let headers = [("Cookie", "session=1"), ("X-Secret", "no")];
    let mut client = LiveClient::open(&broker, Encoding::Json, &headers);
    let result = connected(&mut client, r#"{"name":"ada"}"#);
    assert_eq!(result.data.as_bytes(), br#"{"hello":"ada"}"#);
    assert!(!result.expires);
    let [asked] = application.asked().try_into().unwrap();
    assert_eq!(asked.body["client"], result.client);
    assert_eq!((&asked.body["protocol"], &asked.body["name"]), (&json!("json"), &json!("test")));
    assert_eq!(asked.body["address"], "127.0.0.1");
    assert!(asked.head.contains("session=1") && !asked.head.contains("no\r\n"), "{}", asked.head);
    client.subscribe("room");
    let request = Request::Presence(ChannelRequest { channel: "room".into() });
    let Ok(Answer::Presence(presence)) = client.ask(request) else { panic!() };
    let info = &presence.presence[&result.client];
    assert_eq!(info.user, "ada");
    assert_eq!(info.connection_data.as_bytes(), br#"{"full":"ada"}"#);
    client.publish("room", "hello").unwrap();
    assert_eq!(client.published().1.info.unwrap().user, "ada");
    broker.stop();
}

#[test]
fn the_application_may_refuse_a_client_or_end_its_connection() {
    let application = Application::start(|_, body| match body["data"].as_str().unwrap() {
        "refused" => Some(json!({"error": {"code": 1001, "message": "not you"}})),
        "ended" => Some(json!({"disconnect": {"code": 4501, "reason": "go away"}})),
        _ => None,
    });
    let (broker, _folder) = broker(&application);
    let connect = |said: &str| {
        let mut client = LiveClient::open(&broker, Encoding::Json, &[]);
        let request = ConnectRequest { data: data(said), ..<_>::default() };
        (client.send(Request::Connect(request)), client)
    };
    let (number, mut client) = connect("\"refused\"");
    let refused = client.answer_to(number).unwrap_err();
    assert_eq!((refused.code, &*refused.message, refused.temporary), (1001, "not you", false));
    let (_, mut client) = connect("\"ended\"");
    let close = client.close();
    assert_eq!((close.code, &*close.reason), (CloseCode::of(4501), "go away"));
    // One that is broken says nothing of itself to the client, which may come again.
    let (number, mut client) = connect("\"broken\"");
    let refused = client.answer_to(number).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Internal.code());
    assert!(refused.temporary, "{refused:?}");
    broker.stop();
}

#[test]
fn the_application_is_asked_about_the_topics_that_the_settings_name_and_no_others() {
    let application = Application::start(|path, body| match path {
        "/live/connect" => Some(json!({"result": {"user": "ada"}})),
        "/live/subscribe" if body["channel"] == "private.mine" => {
            Some(json!({"result": {"info": {"seat": 1}, "data": {"topic": "of ada"}}}))
        }
        "/live/publish" if body["data"] == "bad" => {
            Some(json!({"error": {"code": 1002, "message": "be nice"}}))
        }
        "/live/publish" => {
            Some(json!({"result": {"data": {"said": body["data"], "by": body["user"]}}}))
        }
        _ => Some(json!({"error": {"code": 103, "message": "no"}})),
    });
    let (broker, _folder) = broker(&application);
    let mut client = LiveClient::of(&broker);
    client.subscribe("news");
    assert_eq!(application.asked().len(), 1, "of news it is not asked");
    let subscribe = |channel: &str| SubscribeRequest { channel: channel.into(), ..<_>::default() };
    let result = client.subscribed(subscribe("private.mine")).unwrap();
    assert_eq!(result.data.as_bytes(), br#"{"topic":"of ada"}"#);
    let refused = client.subscribed(subscribe("private.other")).unwrap_err();
    assert_eq!(refused.code, ErrorCode::PermissionDenied.code());
    client.subscribe("chat.room");
    client.publish("chat.room", "hello").unwrap();
    let (_, publication) = client.published();
    let said: Value = serde_json::from_slice(publication.data.as_bytes()).unwrap();
    assert_eq!(
        said,
        json!({"said": "hello", "by": "ada"}),
        "it is published as the application has it"
    );
    let refused = client.publish("chat.room", "bad").unwrap_err();
    assert_eq!((refused.code, &*refused.message), (1002, "be nice"));
    client.publish("news", "bad").unwrap();
    broker.stop();
}

#[test]
fn calls_are_answered_by_the_application_in_both_encodings() {
    let application = Application::start(|path, body| match path {
        "/live/connect" => Some(json!({"result": {}})),
        _ => Some(json!({"result": {"data": {"method": body["method"], "of": body["data"]}}})),
    });
    let (broker, _folder) = broker(&application);
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let mut client = LiveClient::connect(&broker, encoding, "");
        let call = RpcRequest { method: "sum".into(), data: data("[1,2]") };
        let Ok(Answer::Rpc(result)) = client.ask(Request::Rpc(call)) else { panic!() };
        let said: Value = serde_json::from_slice(result.data.as_bytes()).unwrap();
        assert_eq!(said, json!({"method": "sum", "of": [1, 2]}));
    }
    broker.stop();
    // Without an application there is nobody to call.
    let (broker, _folder) = Broker::fresh();
    let call = Request::Rpc(RpcRequest { method: "sum".into(), data: data("1") });
    let refused = LiveClient::of(&broker).ask(call).unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotAvailable.code());
    broker.stop();
}

#[test]
fn a_client_that_the_application_lets_in_has_the_rights_that_it_gives_and_no_others() {
    let folder = TempDir::new().unwrap();
    let application = Application::start(|_, body| {
        let user = body["data"].as_str().unwrap();
        let expire_at = if user == "gone" { 1 } else { 4_000_000_000_u64 };
        let rights = ["subscribe,create room.{sub}"];
        Some(json!({"result": {"user": user, "rights": rights, "expire_at": expire_at}}))
    });
    let live_backend = LiveBackend { subscribe: Vec::new(), ..application.settings() };
    let broker =
        Broker::start(Config { live_backend, tokens: tokens::settings(), ..config(folder.path()) });
    let mut client = LiveClient::open(&broker, Encoding::Json, &[]);
    assert!(!connected(&mut client, "\"ada\"").expires, "it shows no credentials that expire");
    client.subscribe("room.ada");
    let subscribe = SubscribeRequest { channel: "room.bob".into(), ..<_>::default() };
    let refused = client.subscribed(subscribe).unwrap_err();
    assert_eq!(refused.code, ErrorCode::PermissionDenied.code());
    assert!(client.publish("room.ada", "hello").is_err());
    // A token is looked at by the broker; the application is not asked.
    let token = tokens::mint(&tokens::token("eve", &[], &["subscribe,create >"]));
    let mut other = LiveClient::connect(&broker, Encoding::Json, &token);
    other.subscribe("room.eve");
    assert_eq!(application.asked().len(), 1);
    // Its word may have an end as well; then it is asked again.
    let mut late = LiveClient::open(&broker, Encoding::Json, &[]);
    connected(&mut late, "\"gone\"");
    assert_eq!(late.close().code, CloseCode::of(3005));
    broker.stop();
}

#[test]
fn the_application_is_asked_whether_a_client_that_it_has_let_in_may_stay() {
    let application = Application::start(|path, body| match (path, body["user"].as_str()) {
        ("/live/connect", _) => {
            Some(json!({"result": {"user": body["data"], "expire_at": in_seconds(3)}}))
        }
        ("/live/refresh", Some("ada")) => {
            let info = json!({"seen": "twice"});
            Some(json!({"result": {"expire_at": 4_000_000_000_u64, "info": info}}))
        }
        ("/live/refresh", Some("bob")) => Some(json!({"result": {"expired": true}})),
        ("/live/refresh", Some("eve")) => {
            Some(json!({"disconnect": {"code": 4501, "reason": "go away"}}))
        }
        _ => None,
    });
    let (broker, _folder) = broker(&application);
    let mut clients = ["ada", "bob", "eve", "dan"].map(|name| {
        let mut client = LiveClient::open(&broker, Encoding::Json, &[]);
        assert!(!connected(&mut client, &format!("{name:?}")).expires);
        client
    });
    // Of the last one it never says anything: what it said before counts until its end.
    for (client, code) in clients[1..].iter_mut().zip([3005, 4501, 3005]) {
        assert_eq!(client.close().code, CloseCode::of(code));
    }
    let asked = |name: &str| {
        let of_refresh = |asked: &Asked| {
            asked.head.starts_with("POST /live/refresh ") && asked.body["user"] == *name
        };
        application.asked().iter().filter(|asked| of_refresh(asked)).count()
    };
    until("it is asked of all", || ["ada", "bob", "eve", "dan"].iter().all(|name| asked(name) > 0));
    let [ada, ..] = &mut clients;
    ada.subscribe("room");
    ada.publish("room", "hello").unwrap();
    let info = ada.published().1.info.unwrap();
    assert_eq!(
        (&*info.user, info.connection_data.as_bytes()),
        ("ada", &br#"{"seen":"twice"}"#[..])
    );
    assert_eq!((asked("ada"), asked("bob"), asked("eve")), (1, 1, 1));
    broker.stop();
}
