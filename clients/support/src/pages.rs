//! Where does a list of the service go on?

/// The path of the next page of the list at `path`, by the header `Link` of the page before; `None` after the last page.
///
/// Example: `/v1/agents` and `<?cursor=eyJ>; rel="next"` give `/v1/agents?cursor=eyJ`.
#[must_use]
pub fn next_page(path: &str, link: Option<&str>) -> Option<String> {
    let (query, relation) = link?.trim().strip_prefix("<?")?.split_once('>')?;
    let list = path.split('?').next().unwrap_or(path);
    relation.contains("rel=\"next\"").then(|| format!("{list}?{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_on_where_its_link_says() {
        let next = |link| next_page("/v1/agents?state=live", link);
        let expected = Some("/v1/agents?state=live&cursor=eyJ".to_owned());
        assert_eq!(next(Some("<?state=live&cursor=eyJ>; rel=\"next\"")), expected);
        assert_eq!(next(None), None);
        assert_eq!(next(Some("<?cursor=eyJ>; rel=\"prev\"")), None);
    }
}
