//! The caller of a guarded route, as handlers get it.

use std::ops::Deref;

use axum::extract::FromRequestParts;
use http::request::Parts;
use kilonova_policy::Target;
use kilonova_wire::{Context, Fault};

use crate::enforcer::own;
use crate::{Enforcer, Guard};

/// Who asks, the policy, and the rule of the route. It is a [`Context`] wherever one is wanted.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who asks.
    pub context: Context,
    enforcer: Enforcer,
    guard: Guard,
}

/// What the door leaves for the handler.
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

    /// Whether the caller may do what the rule is for, to the target.
    pub fn allows(&self, rule: &str, target: Target<'_>) -> bool {
        self.enforcer.allows(&self.context, rule, target)
    }

    /// [`Caller::allows`] for what belongs to the caller's own project, or to none.
    pub fn allows_own(&self, rule: &str) -> bool {
        self.enforcer.allows_own(&self.context, rule)
    }

    /// Refuses what the caller may not do to the target.
    ///
    /// # Errors
    /// 403 in the service's words.
    pub fn may(&self, rule: &str, target: Target<'_>) -> Result<(), Fault> {
        self.enforcer.may(&self.context, rule, target)
    }

    /// [`Caller::may`] for what belongs to the caller's own project, or to none.
    ///
    /// # Errors
    /// 403 in the service's words.
    pub fn may_own(&self, rule: &str) -> Result<(), Fault> {
        self.may(rule, &own(&self.context))
    }

    /// [`Caller::may`] with the route's own rule, on a thing that was found. Where the route has no
    /// single rule, the handler has asked by name.
    ///
    /// # Errors
    /// 403 in the service's words.
    pub fn may_on(&self, target: Target<'_>) -> Result<(), Fault> {
        match self.guard {
            Guard::Own(rule) => self.may(rule, target),
            Guard::Open | Guard::Anyone | Guard::Object(_) | Guard::Action(_) => Ok(()),
        }
    }

    /// What the door decides: the route's own rule, as for a thing of the caller's own.
    ///
    /// # Errors
    /// 403 in the service's words.
    pub fn may_door(&self) -> Result<(), Fault> {
        self.may_on(&own(&self.context))
    }

    /// The same caller, asking for another rule in place of the route's.
    #[must_use]
    pub fn asking(mut self, rule: &'static str) -> Self {
        self.guard = Guard::Own(rule);
        self
    }

    /// The same caller, asking for the rule of an action that the body names; nothing when the route
    /// has no such action.
    #[must_use]
    pub fn acting(mut self, action: &str) -> Option<Self> {
        let Guard::Action(actions) = self.guard else { return None };
        let (_, rule) = actions.iter().find(|(name, _)| *name == action)?;
        self.guard = Guard::Own(rule);
        Some(self)
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fault> {
        let context = Context::from_request_parts(parts, state).await?;
        let Some(Admitted(enforcer, guard)) = parts.extensions.get::<Admitted>().cloned() else {
            return Err(Fault::internal("a handler that asks for its rule is on a route without"));
        };
        Ok(Self { context, enforcer, guard })
    }
}
