//! From the text of a file to a [`Config`], or to everything that is wrong with it.

use onlyonce::policy::Tokens;
use onlyonce::scope::Secret;
use toml::de::DeTable;

use super::Config;
use super::address::Upstream;
use super::admin::Admin;
use super::audit;
use super::error::{Remark, Remarks};
use super::field::{Context, Env, Field, each};
use super::jwt::JwtRule;
use super::matching::Match;
use super::names::{OTLP, POLICY, ROUTE, TOP};
use super::odd;
use super::peers;
use super::preset::Preset;
use super::route::Route;
use super::rules::Rules;
use super::seal;
use super::sources::{Source, Sources};
use super::tls::{TlsRule, UpstreamTlsRule};
use super::webhook;

/// Reads all texts: the configuration, and what in it is allowed but probably not meant. `env` tells what variables
/// hold.
pub(super) fn read(sources: &Sources, env: Env<'_>) -> Result<(Config, Remarks), Remarks> {
    let table = DeTable::parse(sources.main()).map_err(|error| syntax(&error, 0))?;
    let mut wrong = sources.wrong.clone();
    let mut top = Top::default();
    let context = Context { env, begins_at: 0 };
    wrong.gather(each(table.get_ref(), &TOP, context, |field| top.set(field)));
    wrong.gather(top.check_admin());
    wrong.gather(top.check_filter());
    wrong.gather(top.check_audit());
    let policy = wrong.gather(top.policy()).unwrap_or_default();
    let mut drafts = wrong.gather(drafts(top.routes, &policy)).unwrap_or_default();
    for source in sources.included() {
        drafts.extend(wrong.gather(included(source, env, &policy)).unwrap_or_default());
    }
    top.config.included = sources.included().iter().map(|source| source.path.clone()).collect();
    // What contradicts what is known only once everything is.
    wrong.none()?;
    top.finish(policy, drafts, sources)
}

/// The routes of an included file, which has nothing else.
fn included(source: &Source, env: Env<'_>, policy: &Rules) -> Result<Vec<Draft>, Remarks> {
    let begins_at = source.begins_at;
    let table = DeTable::parse(&source.text).map_err(|error| syntax(&error, begins_at))?;
    let (mut wrong, mut routes) = (Remarks::default(), None);
    wrong.gather(each(table.get_ref(), &TOP, Context { env, begins_at }, |field| {
        match field.name.name {
            "route" => routes = Some(field),
            name => return Err(misplaced(name, field.named_at).into()),
        }
        Ok(())
    }));
    let drafts = wrong.gather(drafts(routes, policy)).unwrap_or_default();
    wrong.none().map(|()| drafts)
}

fn misplaced(name: &str, at: usize) -> Remark {
    let message = format!(
        "`{name}` does not belong in an included file, which has [[route]] tables and nothing else; move it to the file that includes this one"
    );
    Remark::new(at, message)
}

fn drafts(routes: Option<Field<'_>>, policy: &Rules) -> Result<Vec<Draft>, Remarks> {
    let tables = routes.map(Field::members).transpose()?;
    let mut wrong = Remarks::default();
    let read = |table| wrong.gather(Draft::read(table, policy));
    let drafts = tables.into_iter().flatten().filter_map(read).collect();
    wrong.none()?;
    Ok(drafts)
}

fn syntax(error: &toml::de::Error, begins_at: usize) -> Remark {
    let at = begins_at + error.span().map_or(0, |span| span.start);
    match error.message() {
        // "Key" means something else here.
        "duplicate key" => Remark::new(at, "this name is given twice"),
        message => Remark::new(at, message.replace('\n', ", ")),
    }
}

/// The top of the file, with the tables that wait for each other.
#[derive(Default)]
struct Top<'a> {
    config: Config,
    odd: Remarks,
    filter: Option<Field<'a>>,
    jwt: Option<Field<'a>>,
    admin: Option<Field<'a>>,
    audit: Option<Field<'a>>,
    policy: Option<Field<'a>>,
    routes: Option<Field<'a>>,
}

impl<'a> Top<'a> {
    fn set(&mut self, field: Field<'a>) -> Result<(), Remarks> {
        let config = &mut self.config;
        match field.name.name {
            "listen" => config.listen = field.listen_address()?,
            "upstream" => config.upstream = Some(field.parsed()?),
            "store" => config.store = field.confidentially_parsed()?,
            "filter" => {
                config.filter = Some(field.confidentially_parsed()?);
                self.filter = Some(field);
            }
            "secret" => self.set_secret(field)?,
            "sweep" => config.sweep = field.duration_above_zero()?,
            "sweep_rows" => config.sweep_rows = field.count()?,
            "bodies_bytes_max" => config.bodies_bytes_max = field.bytes_above_zero()?,
            "executing_max" => config.executing_max = field.count()?,
            "admin" => {
                config.admin = Some(Admin::read(field)?);
                self.admin = Some(field);
            }
            "tls" => config.tls = Some(TlsRule::read(field)?),
            "upstream_tls" => config.upstream_tls = Some(UpstreamTlsRule::read(field)?),
            "jwt" => {
                let rule = JwtRule::read(field)?;
                self.odd.0.extend(rule.odd(field));
                config.jwt = Some(rule);
                self.jwt = Some(field);
            }
            "seal" => config.seal = seal::read(field)?,
            "otlp" => config.otlp = Some(collector(field)?),
            "audit" => {
                config.audit = Some(audit::read(field)?);
                self.audit = Some(field);
            }
            "policy" => self.policy = Some(field),
            // Its files are among the sources already.
            "include" => {}
            _ => self.routes = Some(field),
        }
        Ok(())
    }

    fn set_secret(&mut self, field: Field<'_>) -> Result<(), Remark> {
        let secret = field.confidential()?;
        if secret.len() < SECRET_BYTES_GOOD {
            self.odd.0.push(
                field.wrong(
                    "it is shorter than 16 bytes and can be guessed; use 32 random bytes (openssl rand -hex 32)",
                ),
            );
        }
        self.config.secret = Some(Secret::new(secret));
        Ok(())
    }

    fn check_admin(&self) -> Result<(), Remark> {
        let at = self.admin.map_or(0, |field| field.at);
        let checked = self.config.check_admin();
        checked.map_err(|error| Remark::new(at, error.to_string()))
    }

    fn check_filter(&self) -> Result<(), Remark> {
        let at = self.filter.map_or(0, |field| field.at);
        let checked = self.config.check_filter();
        checked.map_err(|error| Remark::new(at, error.to_string()))
    }

    fn check_audit(&self) -> Result<(), Remark> {
        let at = self.audit.map_or(0, |field| field.at);
        let checked = self.config.check_audit();
        checked.map_err(|error| Remark::new(at, error.to_string()))
    }

    fn check_tokens<'r>(&self, all: impl Iterator<Item = &'r Rules>) -> Result<(), Remark> {
        let mut with_tokens = all.filter(|rules| rules.policy.tokens() != Tokens::Off);
        let Some(rules) = with_tokens.next().filter(|_| self.config.secret.is_none()) else {
            return Ok(());
        };
        let message = "`tokens` needs `secret`, which the gateway signs tokens with; set `secret` at the top of the file";
        Err(Remark::new(rules.said.anywhere(&["tokens"]).unwrap_or(0), message))
    }

    fn check_jwt<'r>(&self, all: impl Iterator<Item = &'r Rules>) -> Result<(), Remark> {
        let mut with_jwt = all.filter(|rules| rules.principal.needs_jwt());
        let Some(rules) = with_jwt.next().filter(|_| self.config.jwt.is_none()) else {
            return Ok(());
        };
        let message =
            "`principal` \"jwt:…\" needs [jwt], with the keys that tokens are verified with";
        Err(Remark::new(rules.said.anywhere(&["principal"]).unwrap_or(0), message))
    }

    fn unread_jwt<'r>(&self, mut all: impl Iterator<Item = &'r Rules>) -> Option<Remark> {
        let field = self.jwt.filter(|_| !all.any(|rules| rules.principal.needs_jwt()))?;
        let message = "[jwt] has no effect: no `principal` is \"jwt:…\", so that no token is verified; set `principal` to \"jwt:sub\", or remove [jwt]";
        Some(Remark::new(field.named_at, message))
    }

    fn check_mtls<'r>(&self, all: impl Iterator<Item = &'r Rules>) -> Result<(), Remark> {
        let is_asked = self.config.asks_for_certificates();
        let mut with_mtls = all.filter(|rules| rules.principal.needs_mtls());
        let Some(rules) = with_mtls.next().filter(|_| !is_asked) else { return Ok(()) };
        let message = "`principal` \"mtls\" needs [tls] with `client_ca`, which verifies the certificates of clients";
        Err(Remark::new(rules.said.anywhere(&["principal"]).unwrap_or(0), message))
    }

    fn policy(&self) -> Result<Rules, Remarks> {
        let mut rules = Rules::default();
        if let Some(field) = self.policy {
            field.each(&POLICY, |field| rules.set(field))?;
        }
        Ok(rules)
    }

    fn finish(
        mut self,
        policy: Rules,
        drafts: Vec<Draft>,
        sources: &Sources,
    ) -> Result<(Config, Remarks), Remarks> {
        let mut wrong = Remarks::default();
        odd::look(&drafts, &policy, sources, &mut self.odd);
        let all = drafts.iter().map(|draft| &draft.rules).chain([&policy]);
        self.odd.0.extend(all.clone().filter_map(peers::unproven));
        let own = |draft: &Draft| peers::unread(&draft.rules, [&draft.rules].into_iter());
        self.odd.0.extend(drafts.iter().filter_map(own));
        self.odd.0.extend(peers::unread(&policy, all.clone()));
        self.odd.0.extend(self.unread_jwt(all.clone()));
        wrong.gather(self.check_tokens(all.clone()));
        wrong.gather(self.check_jwt(all.clone()));
        wrong.gather(self.check_mtls(all));
        let at = self.policy.map_or(0, |field| field.at);
        let fallback = wrong.gather(Route::new(Match::EVERYTHING, policy, at));
        let route = |draft: Draft| wrong.gather(draft.route(sources));
        let routes = drafts.into_iter().filter_map(route).collect();
        wrong.none()?;
        self.config.routes = routes;
        self.config.fallback = fallback.unwrap_or(self.config.fallback);
        Ok((self.config, self.odd))
    }
}

/// Where traces are sent.
fn collector(field: Field<'_>) -> Result<Upstream, Remarks> {
    let mut endpoint = None;
    field.each(&OTLP, |field| {
        endpoint = Some(field.parsed()?);
        Ok(())
    })?;
    let missing = "[otlp] needs `endpoint`, such as endpoint = \"http://127.0.0.1:4318\"";
    endpoint.ok_or_else(|| Remark::new(field.at, missing).into())
}

/// A route that contradicts nothing yet.
pub(super) struct Draft {
    pub(super) matching: Match,
    pub(super) rules: Rules,
    /// Where its table begins.
    pub(super) at: usize,
}

impl Draft {
    fn read(table: Field<'_>, policy: &Rules) -> Result<Self, Remarks> {
        table.table()?;
        let (mut wrong, mut fields) = (Remarks::default(), Vec::new());
        wrong.gather(table.each(&ROUTE, |field| {
            fields.push(field);
            Ok(())
        }));
        let mut rules = policy.inherited();
        let matching = wrong.gather(matching(table, &fields));
        // The preset first, then the webhook's, so that the route's own values stand over them.
        fields.sort_by_key(|field| match field.name.name {
            "preset" => 0,
            "webhook" => 1,
            _ => 2,
        });
        for field in fields {
            wrong.gather(set(&mut rules, field, matching.as_ref()));
        }
        match matching {
            Some(matching) if wrong.0.is_empty() => Ok(Self { matching, rules, at: table.at }),
            _ => Err(wrong),
        }
    }

    fn route(self, sources: &Sources) -> Result<Route, Remark> {
        let (file, line, _) = sources.place(self.at);
        let written = format!("{}:{line}", file.display());
        Ok(Route { written, ..Route::new(self.matching, self.rules, self.at)? })
    }
}

fn matching(table: Field<'_>, fields: &[Field<'_>]) -> Result<Match, Remark> {
    match fields.iter().find(|field| field.name.name == "match") {
        Some(field) => field.parsed(),
        None => Err(Remark::new(
            table.at,
            "a [[route]] needs `match`, such as match = \"POST /v1/charges\"",
        )),
    }
}

fn set(rules: &mut Rules, field: Field<'_>, matching: Option<&Match>) -> Result<(), Remarks> {
    let does_name_methods = matching.is_some_and(|matching| matching.methods().is_some());
    match field.name.name {
        "match" => Ok(()),
        "preset" => {
            let preset = field.one_of(&Preset::ALL)?;
            preset.apply(rules, field.named_at);
            rules.is_payments = preset == Preset::Payments;
            Ok(())
        }
        "webhook" => {
            webhook::apply(webhook::read(field)?, rules, field.named_at);
            Ok(())
        }
        "methods" if does_name_methods => Err(field
            .wrong("`match` names the methods already; remove one, or let `match` begin with *")
            .into()),
        _ => rules.set(field),
    }
}

const SECRET_BYTES_GOOD: usize = 16;
