//! How is a list read page by page? With `limit` and `cursor`, and with the header `Link` (RFC 8288) to the next page.
//!
//! Example: `GET /v1/plans?limit=2` answers with two plans and `Link: <?limit=2&cursor=eyJ...>; rel="next"`. A cursor holds
//! the key of the last entry. So an entry that is added or deleted meanwhile neither repeats nor hides another.

use super::refusal::Refusal;
use crate::store::LIST_MAX;
use actix_web::dev::Payload;
use actix_web::http::{StatusCode, header};
use actix_web::{FromRequest, HttpRequest, HttpResponse, web};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{CONTROLS, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::future::{Ready, ready};
use std::str::FromStr;
use utoipa::openapi::{HeaderBuilder, Object, OpenApi, RefOr, Type};
use utoipa::{IntoParams, Modify};

/// Most entries of an answer, and the number if a client does not say it.
pub const LIMIT_MAX: usize = LIST_MAX as usize;

/// The parameters of each list.
#[derive(Clone, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // read by `ListPage`
pub struct PageQuery {
    /// Most entries of the answer; default 1000. If more follow, the header `Link` leads to them.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Where the answer begins: a text from the header `Link` of another answer of this list. Default: the first entry.
    pub cursor: Option<String>,
}

/// The filter of a list by name.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PrefixQuery {
    /// Only those whose names begin with this text.
    pub prefix: Option<String>,
}

/// The page of a list that a client asks for. `K` is the key by which the list is sorted, and `F` its filter.
#[derive(Clone, Debug)]
pub struct ListPage<K, F> {
    /// The other parameters of the query.
    pub filter: F,
    /// The key of the entry before the page; `None`: the page is the first.
    pub after: Option<K>,
    limit: usize,
    /// The path of the list.
    list: String,
    /// The query without the cursor.
    query: String,
}

/// The content of a cursor.
#[derive(Serialize, Deserialize)]
struct Cursor {
    /// The path of its list.
    list: String,
    /// The key of the last entry that the client has.
    after: String,
}

/// The header `Link`, if there is a next page.
#[must_use]
pub struct NextPage(Option<String>);

impl<K: FromStr, F: DeserializeOwned> FromRequest for ListPage<K, F> {
    type Error = Refusal;
    type Future = Ready<Result<Self, Refusal>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Self::read(request.path(), request.query_string()))
    }
}

impl<K: FromStr, F: DeserializeOwned> ListPage<K, F> {
    /// The page of the list at `path` that a query asks for.
    ///
    /// # Errors
    /// 422 if limit or cursor are wrong, or if a value holds U+0000; 400 if the filter cannot be read.
    fn read(path: &str, query: &str) -> Result<Self, Refusal> {
        let (mut limit, mut after) = (None, None);
        let (mut filters, mut kept) = (Vec::new(), Vec::new());
        for part in query.split('&') {
            let Some((name, value)) = decoded(part)? else { continue };
            match name.as_str() {
                "limit" if limit.is_none() => limit = Some(read_limit(&value)?),
                "cursor" if after.is_none() => after = Some(read_cursor(path, &value)?),
                "limit" | "cursor" => return Err(Refusal::value(name.as_str(), "given twice: expected it once")),
                _ => filters.push(part),
            }
            if name != "cursor" {
                kept.push(part);
            }
        }
        let filter = web::Query::<F>::from_query(&filters.join("&")).map_err(unreadable)?.into_inner();
        let (limit, list) = (limit.unwrap_or(LIMIT_MAX), path.to_owned());
        Ok(Self { filter, after, limit, list, query: kept.join("&") })
    }
}

impl<K: ToString, F> ListPage<K, F> {
    /// How many rows to read: one more than the page has, which says whether there is a next page.
    #[must_use]
    pub fn rows_max(&self) -> i64 {
        self.limit as i64 + 1
    }

    /// Takes away the row beyond the page. The key of the last row that stays leads to the next page.
    pub fn cut<R>(&self, rows: &mut Vec<R>, key: impl Fn(&R) -> K) -> NextPage {
        if rows.len() <= self.limit {
            return NextPage(None);
        }
        rows.truncate(self.limit);
        NextPage(rows.last().map(|row| self.link(&key(row))))
    }

    /// The answer of up to [`Self::rows_max`] rows: a document for each row of the page.
    #[must_use]
    pub fn answer<R, D: Serialize>(
        &self,
        mut rows: Vec<R>,
        key: impl Fn(&R) -> K,
        document: impl Fn(R) -> D,
    ) -> HttpResponse {
        let next = self.cut(&mut rows, key);
        next.answer(&rows.into_iter().map(document).collect::<Vec<_>>())
    }

    /// The reference has no path, so it is right behind a proxy that serves this service below another path.
    fn link(&self, key: &K) -> String {
        let cursor = Cursor { list: self.list.clone(), after: key.to_string() };
        let cursor = URL_SAFE_NO_PAD.encode(serde_json::to_string(&cursor).expect("a cursor is JSON"));
        let and = if self.query.is_empty() { "" } else { "&" };
        format!("<?{}{and}cursor={cursor}>; rel=\"next\"", utf8_percent_encode(&self.query, CONTROLS))
    }
}

impl NextPage {
    /// The answer with these documents.
    pub fn answer<D: Serialize>(self, documents: &[D]) -> HttpResponse {
        let mut response = HttpResponse::Ok();
        if let Some(link) = self.0 {
            response.insert_header((header::LINK, link));
        }
        response.json(documents)
    }
}

/// Name and value of one part of a query; `None` if the part is empty.
fn decoded(part: &str) -> Result<Option<(String, String)>, Refusal> {
    let pair = web::Query::<Vec<(String, String)>>::from_query(part).map_err(unreadable)?.into_inner().pop();
    match pair {
        Some((name, value)) if value.contains('\0') => {
            Err(Refusal::value(name, "the value holds the character U+0000: expected text without it"))
        }
        pair => Ok(pair),
    }
}

fn unreadable(error: impl ToString) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, error.to_string())
}

fn read_limit(text: &str) -> Result<usize, Refusal> {
    let limit = text.parse::<usize>().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| Refusal::value("limit", format!("{text:?}: expected a whole number from 1 to {LIMIT_MAX}")))
}

/// The key in a cursor of the list at `path`.
fn read_cursor<K: FromStr>(path: &str, text: &str) -> Result<K, Refusal> {
    let refused = || {
        let expected = format!("expected a cursor from the header Link of an answer of {path}");
        Refusal::value("cursor", format!("{text:?}: {expected}"))
    };
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| refused())?;
    let cursor: Cursor = serde_json::from_slice(&bytes).map_err(|_| refused())?;
    if cursor.list != path || cursor.after.contains('\0') {
        return Err(refused());
    }
    cursor.after.parse::<K>().map_err(|_| refused())
}

/// Adds the header `Link` to the answers of lists in the description: of all operations with a cursor.
pub struct LinkHeaders;

impl Modify for LinkHeaders {
    fn modify(&self, description: &mut OpenApi) {
        for operation in description.paths.paths.values_mut().filter_map(|item| item.get.as_mut()) {
            let mut parameters = operation.parameters.iter().flatten();
            let has_cursor = parameters.any(|one| matches!(one, RefOr::T(one) if one.name == "cursor"));
            if let (true, Some(RefOr::T(answer))) = (has_cursor, operation.responses.responses.get_mut("200")) {
                let about = "Where the list goes on: `<?cursor=...>; rel=\"next\"`. The last page has none.";
                let link = HeaderBuilder::new().schema(Some(Object::with_type(Type::String))).description(Some(about));
                answer.headers.insert("Link".into(), RefOr::T(link.build()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Filter {
        kind: Option<String>,
    }

    fn read(query: &str) -> Result<ListPage<i64, Filter>, Refusal> {
        ListPage::read("/v1/things", query)
    }

    /// The place of the value for which a query is refused, or the status of a refusal without a place.
    fn refused(query: &str) -> String {
        let refusal = read(query).expect_err("it is refused");
        refusal.errors.first().map_or_else(|| refusal.status.to_string(), |error| error.pointer.clone())
    }

    /// The query of the next page after the key 7.
    fn next(query: &str) -> String {
        let link = read(query).expect("a page").link(&7);
        let query = link.strip_prefix("<?").and_then(|rest| rest.strip_suffix(">; rel=\"next\""));
        query.expect("a link").to_owned()
    }

    #[test]
    fn a_link_keeps_the_other_parameters() {
        let query = next("kind=a%20b&limit=3");
        assert!(query.starts_with("kind=a%20b&limit=3&cursor="), "{query}");
        let page = read(&query).expect("the next page");
        assert_eq!((page.after, page.limit, page.filter.kind.as_deref()), (Some(7), 3, Some("a b")));
        assert_eq!(next(&query), query, "the old cursor is replaced");
    }

    #[test]
    fn a_link_is_ascii() {
        let query = next("kind=ä");
        assert!(query.starts_with("kind=%C3%A4&cursor="), "{query}");
        assert_eq!(read(&query).expect("the next page").filter.kind.as_deref(), Some("ä"));
    }

    #[test]
    fn wrong_queries_are_refused_with_their_place() {
        let whole = next("").replace("cursor=", "");
        let (cut, turned) = (&whole[..whole.len() - 1], whole.chars().rev().collect::<String>());
        for limit in ["0", "1001", "-1", "x", "", "1.5"] {
            assert_eq!(refused(&format!("limit={limit}")), "limit", "{limit}");
        }
        for cursor in [cut, turned.as_str(), "", "x", "{}", "e30"] {
            assert_eq!(refused(&format!("cursor={cursor}")), "cursor", "{cursor}");
        }
        assert!(read(&format!("cursor={whole}")).is_ok());
        assert_eq!(refused(&format!("cursor={whole}&cursor={whole}")), "cursor");
        assert_eq!(refused("kind=%00"), "kind");
        for unreadable in ["colour=red", "kind=a&kind=b"] {
            assert_eq!(refused(unreadable), "400", "{unreadable}");
        }
    }

    #[test]
    fn a_cursor_belongs_to_its_list() {
        let query = next("");
        assert!(ListPage::<i64, Filter>::read("/v1/others", &query).is_err());
        assert!(ListPage::<uuid::Uuid, Filter>::read("/v1/things", &query).is_err(), "the key has another form");
    }
}
