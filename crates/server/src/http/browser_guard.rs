//! The guard against pages in browsers: it checks each request before the request is routed. The host must be one
//! of the broker's, or a page could reach the port by a name of its own that points here. A page of another origin
//! may use only the routes that allow it. It knows no streams.

use std::cell::RefCell;

use http::{HeaderName, Method, StatusCode, header};

use super::{
    allowed_hosts::AllowedHosts,
    allowed_origins::{AllowedOrigins, Asker},
    answer::coded_problem,
    browser_headers::{self, May, PageHeaders, TO_OWN_PAGES},
    host_name::HostName,
    request::{Headers, Request},
    response::{HeaderList, Response},
    route::{Reach, Route},
};

/// By what browsers say of whose page a request is, where they say no origin.
static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The longest host that is remembered.
const HOST_KEPT_MAX: usize = 256;

/// What is allowed, as the broker is told when it starts, and by a reload.
#[derive(Clone, Debug)]
pub(crate) struct BrowserRules {
    pub(crate) hosts: AllowedHosts,
    pub(crate) origins: AllowedOrigins,
    pub(crate) page_headers: &'static PageHeaders,
}

#[cfg(test)]
impl Default for BrowserRules {
    fn default() -> Self {
        let hosts = AllowedHosts::new(std::net::Ipv4Addr::LOCALHOST.into(), Vec::new());
        static PAGE_HEADERS: PageHeaders = PageHeaders::new("content-type", "etag");
        Self { hosts, origins: AllowedOrigins::default(), page_headers: &PAGE_HEADERS }
    }
}

/// The guard of a thread.
#[derive(Debug)]
pub(crate) struct BrowserGuard {
    rules: RefCell<BrowserRules>,
    /// The host that was allowed last, as it was written: most requests name the same.
    last_host: RefCell<Vec<u8>>,
}

/// Why a request goes no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misdirected {
    status: StatusCode,
    code: &'static str,
    detail: String,
}

impl Misdirected {
    /// The answer that says so. Pages of other origins cannot read it.
    pub(crate) fn answer(&self) -> Response {
        coded_problem(self.status, self.code, &self.detail)
    }
}

impl BrowserGuard {
    pub(crate) fn new(rules: BrowserRules) -> Self {
        Self { rules: RefCell::new(rules), last_host: RefCell::default() }
    }

    /// Has other rules be in force from now on.
    pub(crate) fn set_rules(&self, rules: BrowserRules) {
        self.rules.replace(rules);
        self.last_host.borrow_mut().clear();
    }

    /// Whether a request may be routed to `route`.
    ///
    /// # Errors
    /// It names no host of the broker's, or is of a page that may not ask this.
    pub(crate) fn check(
        &self,
        request: &Request,
        route: Option<&Route>,
    ) -> Result<(), Misdirected> {
        self.check_host(request.headers())?;
        let may = self.may(request.headers());
        let reach = route.map_or(Reach::Own, |route| route.reach);
        let has_origin = request.headers().get(&header::ORIGIN).is_some();
        let is_allowed = match (may, reach) {
            (Pages::Own, _) => true,
            (Pages::May(_), Reach::Own) => false,
            (Pages::May(May::Change), _) => true,
            (Pages::May(_), Reach::AllowedToChange) => false,
            // What is asked without an origin cannot be read by the page, and a preflight asks for nothing.
            (Pages::May(may), Reach::Allowed) => match *request.method() {
                Method::OPTIONS => true,
                Method::GET | Method::HEAD => may == May::Read || !has_origin,
                _ => false,
            },
        };
        if is_allowed { Ok(()) } else { Err(foreign(request, reach)) }
    }

    /// The answer to a browser that asks what the page of a request may ask of `route`.
    pub(crate) fn preflight(&self, request: &Request, route: &Route) -> Response {
        let may = match self.may(request.headers()) {
            Pages::Own => May::Change,
            Pages::May(may) => may,
        };
        browser_headers::preflight(route, may, self.rules.borrow().page_headers)
    }

    /// Says what the answer to `request` says to browsers whatever it is. What is kept on the way says it
    /// to pages of other origins too, whoever has asked first.
    pub(crate) fn say(&self, headers: &mut HeaderList, request: &Request, reach: Reach) {
        if reach == Reach::Allowed {
            let is_read = match *request.method() {
                Method::GET => true,
                // A preflight says by itself what its page may.
                Method::OPTIONS => false,
                _ => request.headers().get(&header::ORIGIN).is_some(),
            };
            if is_read {
                return self.say_to_readers(headers);
            }
        } else if headers.get(&header::CACHE_CONTROL).is_none() {
            headers.insert(header::CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
        }
        // A page that may not was refused before.
        let is_of_page = reach == Reach::AllowedToChange
            && *request.method() != Method::OPTIONS
            && request.headers().get(&header::ORIGIN).is_some();
        if is_of_page {
            let page_headers = self.rules.borrow().page_headers;
            return headers.say_as_all(&page_headers.to_readers);
        }
        headers.say_as_all(&TO_OWN_PAGES);
    }

    /// Says what an answer says to those who read a stream.
    pub(crate) fn say_to_readers(&self, headers: &mut HeaderList) {
        let rules = self.rules.borrow();
        let page_headers = rules.page_headers;
        if rules.origins.is_open() {
            headers.say_as_all(&page_headers.to_all_readers);
        } else {
            headers.say_as_all(&page_headers.to_readers);
        }
    }

    fn check_host(&self, headers: &Headers) -> Result<(), Misdirected> {
        let mut hosts = headers.all(&header::HOST);
        let (Some(text), None) = (hosts.next(), hosts.next()) else {
            let detail = "a request names one host: the Host header is missing, or there are two";
            return Err(wrong_host("host_missing", detail.to_owned()));
        };
        if !text.is_empty() && *self.last_host.borrow() == text {
            return Ok(());
        }
        let host = str::from_utf8(text).ok().and_then(HostName::with_port);
        let rules = self.rules.borrow();
        let is_own = |host: &HostName| rules.origins.own_host() == Some(host);
        if host.is_some_and(|(host, _)| rules.hosts.allows(&host) || is_own(&host)) {
            if text.len() <= HOST_KEPT_MAX {
                let mut last = self.last_host.borrow_mut();
                last.clear();
                last.extend_from_slice(text);
            }
            return Ok(());
        }
        let host = text.escape_ascii();
        let detail = format!(
            "{host} is no host of this broker: if it is to be, add it to http.hosts (--http-host)"
        );
        Err(wrong_host("host_not_allowed", detail))
    }

    /// What the page may that a request comes from, if it comes from one.
    fn may(&self, headers: &Headers) -> Pages {
        let mut origins = headers.all(&header::ORIGIN);
        let Some(origin) = origins.next() else {
            return match headers.get(&FETCH_SITE) {
                None | Some(b"none" | b"same-origin") => Pages::Own,
                Some(_) => Pages::May(May::Nothing),
            };
        };
        let host = headers.get(&header::HOST).and_then(|host| str::from_utf8(host).ok());
        let rules = self.rules.borrow();
        let asker = match (host.and_then(HostName::with_port), origins.next()) {
            (Some((host, port)), None) => rules.origins.asker(origin, &host, port),
            _ => Asker::Foreign,
        };
        match asker {
            Asker::Own => Pages::Own,
            Asker::Allowed => Pages::May(May::Change),
            Asker::Foreign if rules.origins.is_open() => Pages::May(May::Read),
            Asker::Foreign => Pages::May(May::Nothing),
        }
    }
}

/// Whose page a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// No page, or one of the broker's own origin.
    Own,
    /// A page of another origin, which may that much of what is meant for pages.
    May(May),
}

fn wrong_host(code: &'static str, detail: String) -> Misdirected {
    Misdirected { status: StatusCode::MISDIRECTED_REQUEST, code, detail }
}

fn foreign(request: &Request, reach: Reach) -> Misdirected {
    let whose = match request.headers().get(&header::ORIGIN) {
        Some(origin) => format!("a page of {}", origin.escape_ascii()),
        None => "a page of another origin".to_owned(),
    };
    let detail = if reach != Reach::Own {
        format!(
            "{whose} may not do this: if it is to, start the broker with --http-origin and its origin"
        )
    } else {
        format!(
            "{whose} may not ask this: only streams and live connections are for pages of other origins"
        )
    };
    Misdirected { status: StatusCode::FORBIDDEN, code: "foreign_origin", detail }
}
