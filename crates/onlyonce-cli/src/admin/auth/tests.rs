use http::Request;

use super::*;
use crate::config::Config;

fn head(headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::get("/api/v1/summary");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn keeper(tokens: &str) -> Keeper {
    let text = format!("[admin]\n{tokens}");
    let config = Config::parse(&text, std::path::Path::new("onlyonce.toml")).unwrap();
    Keeper::new(&config.admin.unwrap())
}

fn code(admitted: Result<Role, Problem>) -> Result<Role, &'static str> {
    admitted.map_err(|problem| problem.code)
}

#[test]
fn a_token_says_what_its_bearer_may_do() {
    let keeper = keeper("token = \"operators\"\nread_token = \"readers\"");
    let admit = |sent: &[(&str, &str)], endpoint| code(keeper.admit(&head(sent), endpoint));
    let with = |value| [("authorization", value)];
    assert_eq!(admit(&with("Bearer operators"), Endpoint::Settle), Ok(Role::Operator));
    assert_eq!(admit(&with("bearer readers"), Endpoint::Summary), Ok(Role::Reader));
    assert_eq!(admit(&with("Bearer readers"), Endpoint::Settle), Err("read_only"));
    for wrong in ["Bearer wrong", "operators", "Basic operators", "Bearer  operators", "Bearer"] {
        assert_eq!(admit(&with(wrong), Endpoint::Summary), Err("unauthorized"), "{wrong}");
    }
    assert_eq!(admit(&[], Endpoint::Summary), Err("unauthorized"));
    let twice = [("authorization", "Bearer operators"), ("authorization", "Bearer wrong")];
    assert_eq!(admit(&twice, Endpoint::Summary), Err("unauthorized"));
    assert_eq!(admit(&[], Endpoint::Ready), Ok(Role::Reader));
}

#[test]
fn without_a_token_only_a_loopback_name_is_answered() {
    let keeper = keeper("");
    let admit = |host| code(keeper.admit(&head(&[("host", host)]), Endpoint::Settle));
    for own in ["localhost", "LOCALHOST:8081", "127.0.0.1:8081", "127.9.9.9", "[::1]:8081", "[::1]"]
    {
        assert_eq!(admit(own), Ok(Role::Operator), "{own}");
    }
    for foreign in
        ["evil.test", "evil.test:8081", "127.0.0.1.evil.test", "10.0.0.1", "", "localhost."]
    {
        assert_eq!(admit(foreign), Err("foreign_host"), "{foreign}");
    }
    assert_eq!(code(keeper.admit(&head(&[]), Endpoint::Summary)), Err("foreign_host"));
}

#[test]
fn without_a_token_no_other_site_is_answered() {
    let keeper = keeper("");
    let admit = |name, value| {
        let head = head(&[("host", "127.0.0.1:8081"), (name, value)]);
        code(keeper.admit(&head, Endpoint::Settle))
    };
    assert_eq!(admit("origin", "http://127.0.0.1:8081"), Ok(Role::Operator));
    assert_eq!(admit("sec-fetch-site", "same-origin"), Ok(Role::Operator));
    for other in ["http://evil.test", "http://127.0.0.1:9999", "https://127.0.0.1:8081", "null"] {
        assert_eq!(admit("origin", other), Err("cross_site"), "{other}");
    }
    for other in ["cross-site", "same-site"] {
        assert_eq!(admit("sec-fetch-site", other), Err("cross_site"), "{other}");
    }
}

#[test]
fn behind_tls_the_own_site_is_an_https_one() {
    let keeper = keeper("tls = { cert = \"a.pem\", key = \"a.key\" }");
    let admit = |origin| {
        let head = head(&[("host", "localhost:8081"), ("origin", origin)]);
        code(keeper.admit(&head, Endpoint::Settle))
    };
    assert_eq!(admit("https://localhost:8081"), Ok(Role::Operator));
    assert_eq!(admit("http://localhost:8081"), Err("cross_site"));
}
