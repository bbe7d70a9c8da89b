//! Enforces a service's policy, with refusals in the service's dialect.

use std::sync::{Arc, Mutex, PoisonError};

use kilonova_policy::{Credentials, Defaults, Policy, Rule, Scope, Target};
use kilonova_wire::{Context, Dialect, Refusal};

/// The policies of [`Enforcer::of`], each with its table. A process has one per service.
static DEFAULTS: Mutex<Vec<(&'static [Rule], Arc<Policy>)>> = Mutex::new(Vec::new());

/// A service's policy and dialect; cheap to clone.
#[derive(Debug, Clone)]
pub struct Enforcer {
    policy: Arc<Policy>,
    dialect: Dialect,
}

impl Enforcer {
    /// Enforces the operator's policy.
    pub fn new(policy: Arc<Policy>, dialect: Dialect) -> Self {
        Self { policy, dialect }
    }

    /// Enforces a service's rule table with upstream's defaults. An invalid table refuses everything;
    /// each service has a test that its table is valid. A process parses each table once.
    pub fn of(rules: &'static [Rule], dialect: Dialect) -> Self {
        let mut parsed = DEFAULTS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = parsed.iter().find(|(table, _)| std::ptr::eq(*table, rules));
        if let Some((_, policy)) = known {
            return Self::new(Arc::clone(policy), dialect);
        }
        let policy = Policy::build(rules, &[], Defaults::default()).unwrap_or_else(|error| {
            tracing::error!(%error, "the service's rule table is invalid: all requests are refused");
            Policy::none()
        });
        let policy = Arc::new(policy);
        parsed.push((rules, Arc::clone(&policy)));
        Self::new(policy, dialect)
    }

    /// True if the rule allows the caller to act on the target.
    pub fn allows(&self, caller: &Context, rule: &str, target: Target<'_>) -> bool {
        self.policy.allows(rule, &credentials(caller), target)
    }

    /// [`Enforcer::allows`] for a target in the caller's own project, or in none: one that belongs to the caller.
    pub fn allows_own(&self, caller: &Context, rule: &str) -> bool {
        let own = [("project_id", &*caller.project_id), ("user_id", &*caller.user_id)];
        // Only Neutron's targets also have the project's earlier name; see `can` of `nova/context.py`.
        let earlier = (self.dialect == Dialect::Network).then_some(("tenant_id", own[0].1));
        let target: Vec<_> = own.into_iter().chain(earlier).collect();
        self.allows(caller, rule, &target)
    }

    /// Refuses the caller unless the rule allows the target.
    ///
    /// # Errors
    /// 403 in the service's dialect.
    pub fn may(&self, caller: &Context, rule: &str, target: Target<'_>) -> Result<(), Refusal> {
        match self.allows(caller, rule, target) {
            true => Ok(()),
            false => Err(self.refusal(rule)),
        }
    }

    /// [`Enforcer::may`] for a target in the caller's own project, or in none.
    ///
    /// # Errors
    /// 403 in the service's dialect.
    pub fn may_own(&self, caller: &Context, rule: &str) -> Result<(), Refusal> {
        match self.allows_own(caller, rule) {
            true => Ok(()),
            false => Err(self.refusal(rule)),
        }
    }

    /// The names of the target's values that a rule needs; other values have no effect on its decision.
    pub fn needs(&self, rule: &str) -> &[String] {
        self.policy.needs(rule)
    }

    /// The 403 of this service for a rule.
    pub fn refusal(&self, rule: &str) -> Refusal {
        refusal(self.dialect, rule)
    }

    /// Records in the context whether the service's policy considers the caller an administrator.
    pub(crate) fn mark(&self, caller: &mut Context) {
        caller.admin = self.policy.is_admin(&credentials(caller));
    }
}

/// The caller's credentials for rules.
pub fn credentials(caller: &Context) -> Credentials<'_> {
    Credentials {
        user_id: &caller.user_id,
        project_id: &caller.project_id,
        roles: &caller.roles,
        service_roles: &caller.service_roles,
        scope: match (caller.system, caller.domain_id.is_empty()) {
            (true, _) => Scope::System,
            (false, false) => Scope::Domain,
            (false, true) => Scope::Project,
        },
        domain_id: &caller.domain_id,
        user_domain_id: &caller.user_domain_id,
        project_domain_id: &caller.project_domain_id,
    }
}

/// A service's 403 for a rule, with upstream's message.
pub fn refusal(dialect: Dialect, rule: &str) -> Refusal {
    Refusal::forbidden(match dialect {
        Dialect::Compute => format!("Policy doesn't allow {rule} to be performed."),
        Dialect::Placement => format!("Policy does not allow {rule} to be performed."),
        Dialect::Accelerator => {
            format!("Access was denied to the following resource: {rule}")
        }
        Dialect::Identity => {
            format!("You are not authorized to perform the requested action: {rule}.")
        }
        Dialect::Image => format!("You are not authorized to complete {rule} action."),
        Dialect::Network => {
            return Refusal::forbidden(format!("rule:{rule} is disallowed by policy"))
                .with_code("PolicyNotAuthorized");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    static RULES: &[Rule] =
        &[Rule { name: "shop:list", check: "role:reader", deprecated: None, scopes: &[] }];

    #[test]
    fn a_table_is_parsed_once() {
        let [first, second] =
            [Dialect::Compute, Dialect::Image].map(|one| Enforcer::of(RULES, one));
        assert!(Arc::ptr_eq(&first.policy, &second.policy));
        assert!(first.policy.knows("shop:list"));
    }

    #[test]
    fn only_neutrons_targets_have_the_earlier_name_of_the_project() {
        static OWN: &[Rule] = &[
            Rule {
                name: "project",
                check: "project_id:%(project_id)s",
                deprecated: None,
                scopes: &[],
            },
            Rule {
                name: "tenant",
                check: "tenant_id:%(tenant_id)s",
                deprecated: None,
                scopes: &[],
            },
        ];
        let caller = Context { project_id: "red".into(), ..Context::default() };
        for (dialect, has) in [
            (Dialect::Compute, false),
            (Dialect::Placement, false),
            (Dialect::Image, false),
            (Dialect::Network, true),
        ] {
            let enforcer = Enforcer::of(OWN, dialect);
            assert!(enforcer.allows_own(&caller, "project"), "{dialect:?}");
            assert_eq!(enforcer.allows_own(&caller, "tenant"), has, "{dialect:?}");
            assert_eq!(enforcer.may_own(&caller, "tenant").is_ok(), has, "{dialect:?}");
        }
    }
}
