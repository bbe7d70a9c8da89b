//! Routes with a guard for each method.

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use http::Method;
use kilonova_wire::{Context, Refusal};

use crate::caller::Admitted;
use crate::{Enforcer, Guard, Operation};

/// A handler with its methods and guard.
#[derive(Clone)]
pub struct Guarded<S> {
    methods: Vec<Method>,
    guard: Guard,
    handler: MethodRouter<S>,
}

/// The routes of a service, not yet bound to a policy.
#[derive(Clone)]
pub struct Routes<S> {
    paths: Vec<(String, Vec<Guarded<S>>)>,
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident $method:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<H, T, S>(guard: impl Into<Guard>, handler: H) -> Guarded<S>
        where
            H: Handler<T, S>,
            T: 'static,
            S: Clone + Send + Sync + 'static,
        {
            Guarded {
                methods: vec![Method::$method],
                guard: guard.into(),
                handler: axum::routing::$name(handler),
            }
        }
    )*};
}

methods! {
    /// `GET`, and `HEAD`.
    get GET;
    /// `HEAD`.
    head HEAD;
    /// `POST`.
    post POST;
    /// `PUT`.
    put PUT;
    /// `PATCH`.
    patch PATCH;
    /// `DELETE`.
    delete DELETE;
}

/// The methods that clients of these services use.
const ALL: [(Method, MethodFilter); 5] = [
    (Method::GET, MethodFilter::GET),
    (Method::POST, MethodFilter::POST),
    (Method::PUT, MethodFilter::PUT),
    (Method::PATCH, MethodFilter::PATCH),
    (Method::DELETE, MethodFilter::DELETE),
];

/// One handler for several methods.
pub fn on<H, T, S>(methods: &[Method], guard: impl Into<Guard>, handler: H) -> Guarded<S>
where
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    let known = ALL.iter().filter(|(method, _)| methods.contains(method));
    let handler =
        known.fold(MethodRouter::new(), |router, (_, filter)| router.on(*filter, handler.clone()));
    Guarded { methods: methods.to_vec(), guard: guard.into(), handler }
}

/// One handler for all methods.
pub fn any<H, T, S>(guard: impl Into<Guard>, handler: H) -> Guarded<S>
where
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    on(&ALL.map(|(method, _)| method), guard, handler)
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// No routes.
    pub fn new() -> Self {
        Self { paths: Vec::new() }
    }

    /// Adds a path and its methods.
    #[must_use]
    pub fn route(
        mut self,
        path: impl Into<String>,
        methods: impl IntoIterator<Item = Guarded<S>>,
    ) -> Self {
        self.paths.push((path.into(), methods.into_iter().collect()));
        self
    }

    /// Adds all routes of another table.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.paths.extend(other.paths);
        self
    }

    /// Adds all routes of another table below a prefix.
    #[must_use]
    pub fn nest(mut self, prefix: &str, other: Self) -> Self {
        let below = other.paths.into_iter().map(|(path, all)| (format!("{prefix}{path}"), all));
        self.paths.extend(below);
        self
    }

    /// All operations.
    pub fn operations(&self) -> Vec<Operation> {
        let mut operations = Vec::new();
        for (path, all) in &self.paths {
            for guarded in all {
                operations.extend(guarded.methods.iter().map(|method| Operation {
                    method: method.clone(),
                    path: path.clone(),
                    guard: guarded.guard,
                }));
            }
        }
        operations
    }

    /// Binds the routes to a policy.
    pub fn behind(self, enforcer: &Enforcer) -> Router<S> {
        let mut router = Router::new();
        for (path, all) in self.paths {
            for guarded in all {
                let admitted = Admitted(enforcer.clone(), guarded.guard);
                let handler =
                    guarded.handler.route_layer(middleware::from_fn_with_state(admitted, enforce));
                router = router.route(&path, handler);
            }
        }
        router
    }
}

/// Enforces the route's guard: passes the request on, or answers 401 or 403.
async fn enforce(State(admitted): State<Admitted>, mut request: Request, next: Next) -> Response {
    let Admitted(enforcer, guard) = &admitted;
    match request.extensions_mut().get_mut::<Context>() {
        Some(context) => {
            enforcer.mark(context);
            if let Guard::Own(rule) = guard
                && let Err(refusal) = enforcer.may_own(context, rule)
            {
                return refusal.into_response();
            }
        }
        None if *guard == Guard::Open => {}
        None => {
            let message = "The request you have made requires authentication.";
            return Refusal::unauthorized(message).into_response();
        }
    }
    request.extensions_mut().insert(admitted);
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use kilonova_policy::Rule;
    use kilonova_wire::Dialect;
    use tower::ServiceExt;

    use super::*;
    use crate::{Caller, undefined};

    const fn rule(name: &'static str, check: &'static str) -> Rule {
        Rule { name, check, deprecated: None, scopes: &[] }
    }

    const RULES: &[Rule] = &[
        rule("context_is_admin", "role:boss"),
        rule("shop:list", "role:reader and project_id:%(project_id)s"),
        rule("shop:sell", "rule:context_is_admin"),
        rule("shop:paint", "user_id:%(user_id)s"),
    ];

    async fn list(caller: Caller) -> Result<String, Refusal> {
        caller.may_on(&[("project_id", "red")])?;
        Ok(format!("{}", caller.is_admin()))
    }

    async fn act(caller: Caller, action: String) -> Result<String, Refusal> {
        let caller =
            caller.with_action(&action).ok_or_else(|| Refusal::bad_request("no such action"))?;
        caller.may_on(&[("user_id", "ann")])?;
        Ok(action)
    }

    fn table() -> Routes<()> {
        const ACTIONS: Guard = Guard::Action(&[("sell", "shop:sell"), ("paint", "shop:paint")]);
        Routes::new()
            .route("/", [get(Guard::Open, || async { "hello" })])
            .route("/things", [get("shop:list", list), post(ACTIONS, act)])
    }

    async fn ask(method: &str, path: &str, who: Option<(&str, &str)>, body: &'static str) -> u16 {
        let enforcer = Enforcer::of(RULES, Dialect::Compute);
        let mut request = Request::builder().method(method).uri(path).body(Body::from(body));
        let request = request.as_mut().expect("the request is valid");
        if let Some((role, project)) = who {
            request.extensions_mut().insert(Context {
                user_id: "ann".into(),
                project_id: project.into(),
                roles: vec![role.into()],
                ..Context::default()
            });
        }
        let request = std::mem::take(request);
        let router: Router = table().behind(&enforcer).with_state(());
        router.oneshot(request).await.expect("the router is infallible").status().as_u16()
    }

    #[tokio::test]
    async fn the_guard_decides_first_and_the_handler_on_the_target() {
        assert_eq!(ask("GET", "/", None, "").await, 200);
        assert_eq!(ask("GET", "/things", None, "").await, 401);
        assert_eq!(ask("GET", "/things", Some(("clerk", "red")), "").await, 403);
        assert_eq!(
            ask("GET", "/things", Some(("reader", "blue")), "").await,
            403,
            "the target is red"
        );
        assert_eq!(ask("GET", "/things", Some(("Reader", "red")), "").await, 200);
        assert_eq!(ask("HEAD", "/things", Some(("clerk", "red")), "").await, 403);
        assert_eq!(ask("PUT", "/things", Some(("clerk", "red")), "").await, 405);
        assert_eq!(ask("POST", "/things", Some(("boss", "red")), "sell").await, 200);
        assert_eq!(ask("POST", "/things", Some(("clerk", "red")), "sell").await, 403);
        assert_eq!(ask("POST", "/things", Some(("clerk", "red")), "paint").await, 200);
        assert_eq!(ask("POST", "/things", Some(("boss", "red")), "burn").await, 400);
    }

    #[test]
    fn operations_match_the_routes_and_name_existing_rules() {
        let operations = table().operations();
        let shown: Vec<String> =
            operations.iter().map(|one| format!("{} {}", one.method, one.path)).collect();
        assert_eq!(shown, ["GET /", "GET /things", "POST /things"]);
        assert_eq!(undefined(&operations, RULES), [""; 0]);
        assert_eq!(undefined(&operations, &RULES[..3]), ["POST /things: shop:paint"]);
    }
}
