//! The caller of a guarded route, as an extractor for handlers.

use std::ops::Deref;

use axum::extract::FromRequestParts;
use http::request::Parts;
use kilonova_policy::Target;
use kilonova_wire::{Context, Refusal};

use crate::{Enforcer, Guard};

/// The caller with the policy and the guard of the route. Dereferences to its [`Context`].
#[derive(Debug, Clone)]
pub struct Caller {
    /// The caller's identity.
    pub context: Context,
    enforcer: Enforcer,
    guard: Guard,
}

/// The policy and guard that [`crate::Routes`] passes to the handler.
#[derive(Debug, Clone)]
pub(crate) struct Admitted(pub Enforcer, pub Guard);

impl Deref for Caller {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl Caller {
    /// The policy of the service.
    pub fn policy(&self) -> &Enforcer {
        &self.enforcer
    }

    /// True if the rule allows the caller to act on the target.
    pub fn allows(&self, rule: &str, target: Target<'_>) -> bool {
        self.enforcer.allows(&self.context, rule, target)
    }

    /// [`Caller::allows`] for a target in the caller's own project, or in none.
    pub fn allows_own(&self, rule: &str) -> bool {
        self.enforcer.allows_own(&self.context, rule)
    }

    /// Refuses the caller unless the rule allows the target.
    ///
    /// # Errors
    /// 403 in the service's dialect.
    pub fn may(&self, rule: &str, target: Target<'_>) -> Result<(), Refusal> {
        self.enforcer.may(&self.context, rule, target)
    }

    /// [`Caller::may`] for a target in the caller's own project, or in none.
    ///
    /// # Errors
    /// 403 in the service's dialect.
    pub fn may_own(&self, rule: &str) -> Result<(), Refusal> {
        self.enforcer.may_own(&self.context, rule)
    }

    /// [`Caller::may`] with the route's own rule, on the target that the handler has looked up.
    /// Does nothing if the route has no single rule; the handler then enforces one by name.
    ///
    /// # Errors
    /// 403 in the service's dialect.
    pub fn may_on(&self, target: Target<'_>) -> Result<(), Refusal> {
        match self.guard {
            Guard::Own(rule) => self.may(rule, target),
            Guard::Open | Guard::Anyone | Guard::Object(_) | Guard::Action(_) => Ok(()),
        }
    }

    /// Repeats the decision of the route's guard, for a target in the caller's own project.
    ///
    /// # Errors
    /// 403 in the service's dialect.
    pub fn may_route(&self) -> Result<(), Refusal> {
        match self.guard {
            Guard::Own(rule) => self.may_own(rule),
            Guard::Open | Guard::Anyone | Guard::Object(_) | Guard::Action(_) => Ok(()),
        }
    }

    /// The same caller with another rule in place of the route's.
    #[must_use]
    pub fn with_rule(mut self, rule: &'static str) -> Self {
        self.guard = Guard::Own(rule);
        self
    }

    /// The same caller with the rule of an action that the body names; `None` if the route has no such
    /// action.
    #[must_use]
    pub fn with_action(mut self, action: &str) -> Option<Self> {
        let Guard::Action(actions) = self.guard else { return None };
        let (_, rule) = actions.iter().find(|(name, _)| *name == action)?;
        self.guard = Guard::Own(rule);
        Some(self)
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let context = Context::from_request_parts(parts, state).await?;
        let Some(Admitted(enforcer, guard)) = parts.extensions.get::<Admitted>().cloned() else {
            return Err(Refusal::internal("a handler takes a Caller, but its route has no guard"));
        };
        Ok(Self { context, enforcer, guard })
    }
}
