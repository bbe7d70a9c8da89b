//! Glance's policy rules with the defaults of Glance 33, which an operator's `policy.yaml` may
//! override. The table includes rules for operations that are not offered here, so that such a file
//! carries over unchanged.

use kilonova_access::{changed, rule};
use kilonova_policy::{Rule, Scope};

const ADMIN: &str = "rule:context_is_admin";
const MEMBER: &str = "rule:context_is_admin or (role:member and project_id:%(project_id)s)";
const READER: &str = "rule:context_is_admin or (role:reader and project_id:%(project_id)s)";

const PROJECT: &[Scope] = &[Scope::Project];

/// All rules.
pub const RULES: &[Rule] = &[
    changed("default", "", ADMIN, &[]),
    rule("context_is_admin", "role:admin", &[]),
    rule("service_api", "role:service or role:admin", &[]),
    changed(
        "add_image",
        "rule:context_is_admin or (role:member and project_id:%(project_id)s and project_id:%(owner)s)",
        "rule:default",
        PROJECT,
    ),
    changed("delete_image", MEMBER, "rule:default", PROJECT),
    changed(
        "get_image",
        "rule:context_is_admin or (role:reader and (project_id:%(project_id)s or project_id:%(member_id)s or 'community':%(visibility)s or 'public':%(visibility)s or 'shared':%(visibility)s))",
        "rule:default",
        PROJECT,
    ),
    changed("get_images", READER, "rule:default", PROJECT),
    changed("modify_image", MEMBER, "rule:default", PROJECT),
    rule("publicize_image", ADMIN, PROJECT),
    changed("communitize_image", MEMBER, "rule:default", PROJECT),
    changed(
        "download_image",
        "rule:context_is_admin or (role:member and (project_id:%(project_id)s or project_id:%(member_id)s or 'community':%(visibility)s or 'public':%(visibility)s or 'shared':%(visibility)s))",
        "rule:default",
        PROJECT,
    ),
    rule(
        "download_from_store",
        "rule:context_is_admin or (role:member and (project_id:%(project_id)s or project_id:%(member_id)s or 'community':%(visibility)s or 'public':%(visibility)s or 'shared':%(visibility)s))",
        PROJECT,
    ),
    changed("upload_image", MEMBER, "rule:default", PROJECT),
    changed("delete_image_location", ADMIN, "rule:default", PROJECT),
    changed("get_image_location", READER, "rule:default", PROJECT),
    changed("set_image_location", MEMBER, "rule:default", PROJECT),
    rule(
        "add_image_location",
        "rule:service_api or (role:member and project_id:%(project_id)s and project_id:%(owner)s)",
        PROJECT,
    ),
    rule("fetch_image_location", "rule:service_api", PROJECT),
    changed("add_member", MEMBER, "rule:default", PROJECT),
    changed("delete_member", MEMBER, "rule:default", PROJECT),
    changed(
        "get_member",
        "rule:context_is_admin or role:reader and (project_id:%(project_id)s or project_id:%(member_id)s)",
        "rule:default",
        PROJECT,
    ),
    changed(
        "get_members",
        "rule:context_is_admin or role:reader and (project_id:%(project_id)s or project_id:%(member_id)s)",
        "rule:default",
        PROJECT,
    ),
    changed(
        "modify_member",
        "rule:context_is_admin or (role:member and project_id:%(member_id)s)",
        "rule:default",
        PROJECT,
    ),
    rule("manage_image_cache", ADMIN, PROJECT),
    changed("deactivate", MEMBER, "rule:default", PROJECT),
    changed("reactivate", MEMBER, "rule:default", PROJECT),
    rule("copy_image", ADMIN, PROJECT),
    rule("list_cached_nodes", ADMIN, PROJECT),
    changed("get_task", "rule:default", "rule:default", PROJECT),
    changed("get_tasks", "rule:default", "rule:default", PROJECT),
    changed("add_task", "rule:default", "rule:default", PROJECT),
    rule("modify_task", "rule:default", PROJECT),
    rule("tasks_api_access", ADMIN, PROJECT),
    rule("metadef_default", "", &[]),
    rule("metadef_admin", ADMIN, &[]),
    changed(
        "get_metadef_namespace",
        "rule:context_is_admin or (role:reader and (project_id:%(project_id)s or 'public':%(visibility)s))",
        "rule:metadef_default",
        PROJECT,
    ),
    changed("get_metadef_namespaces", READER, "rule:metadef_default", PROJECT),
    rule("modify_metadef_namespace", "rule:metadef_admin", PROJECT),
    rule("add_metadef_namespace", "rule:metadef_admin", PROJECT),
    rule("delete_metadef_namespace", "rule:metadef_admin", PROJECT),
    changed(
        "get_metadef_object",
        "rule:context_is_admin or (role:reader and (project_id:%(project_id)s or 'public':%(visibility)s))",
        "rule:metadef_default",
        PROJECT,
    ),
    changed(
        "get_metadef_objects",
        "rule:context_is_admin or (role:reader and (project_id:%(project_id)s or 'public':%(visibility)s))",
        "rule:metadef_default",
        PROJECT,
    ),
    rule("modify_metadef_object", "rule:metadef_admin", PROJECT),
    rule("add_metadef_object", "rule:metadef_admin", PROJECT),
    rule("delete_metadef_object", "rule:metadef_admin", PROJECT),
    changed(
        "list_metadef_resource_types",
        "rule:context_is_admin or (role:reader and (project_id:%(project_id)s or 'public':%(visibility)s))",
        "rule:metadef_default",
        PROJECT,
    ),
    changed(
        "get_metadef_resource_type",
        "rule:context_is_admin or (role:reader and (project_id:%(project_id)s or 'public':%(visibility)s))",
        "rule:metadef_default",
        PROJECT,
    ),
    rule("add_metadef_resource_type_association", "rule:metadef_admin", PROJECT),
    rule("remove_metadef_resource_type_association", "rule:metadef_admin", PROJECT),
    changed(
        "get_metadef_property",
        "rule:context_is_admin or (role:reader and (project_id:%(project_id)s or 'public':%(visibility)s))",
        "rule:metadef_default",
        PROJECT,
    ),
    changed(
        "get_metadef_properties",
        "rule:context_is_admin or (role:reader and (project_id:%(project_id)s or 'public':%(visibility)s))",
        "rule:metadef_default",
        PROJECT,
    ),
    rule("modify_metadef_property", "rule:metadef_admin", PROJECT),
    rule("add_metadef_property", "rule:metadef_admin", PROJECT),
    rule("remove_metadef_property", "rule:metadef_admin", PROJECT),
    changed(
        "get_metadef_tag",
        "rule:context_is_admin or (role:reader and (project_id:%(project_id)s or 'public':%(visibility)s))",
        "rule:metadef_default",
        PROJECT,
    ),
    changed(
        "get_metadef_tags",
        "rule:context_is_admin or (role:reader and (project_id:%(project_id)s or 'public':%(visibility)s))",
        "rule:metadef_default",
        PROJECT,
    ),
    rule("modify_metadef_tag", "rule:metadef_admin", PROJECT),
    rule("add_metadef_tag", "rule:metadef_admin", PROJECT),
    rule("add_metadef_tags", "rule:metadef_admin", PROJECT),
    rule("delete_metadef_tag", "rule:metadef_admin", PROJECT),
    rule("delete_metadef_tags", "rule:metadef_admin", PROJECT),
    changed("cache_image", ADMIN, "rule:manage_image_cache", PROJECT),
    changed("cache_list", ADMIN, "rule:manage_image_cache", PROJECT),
    changed("cache_delete", ADMIN, "rule:manage_image_cache", PROJECT),
    rule("cache_clean", ADMIN, PROJECT),
    rule("cache_prune", ADMIN, PROJECT),
    changed("stores_info_detail", "rule:context_is_admin or rule:service_api", ADMIN, PROJECT),
];

#[cfg(test)]
mod tests {
    use kilonova_policy::{Defaults, Policy};

    use super::RULES;

    #[test]
    fn the_table_is_valid_with_either_set_of_defaults() {
        for new_only in [false, true] {
            Policy::build(RULES, &[], Defaults { new_only, scope: true })
                .expect("the table is valid");
        }
    }
}
