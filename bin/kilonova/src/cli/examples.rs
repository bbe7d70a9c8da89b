//! Examples for the help pages. A test parses each line as a command line.

/// Examples for `kilonova`.
pub const ALL: &str = "\
Examples:
  kilonova serve --state-dir state --nodes examples/nodes/demo.toml --dev
  kilonova doctor --state-dir state
  kilonova server explain vm1
  kilonova host drain host1";

/// Examples for `serve`.
pub const SERVE: &str = "\
Examples:
  kilonova serve --state-dir state --nodes examples/nodes/demo.toml --dev
  kilonova serve --config /etc/kilonova/kilonova.conf
  kilonova serve --database postgresql://kilonova@db.example/kilonova --listen 192.0.2.1:8774
  kilonova serve --node-listen 0.0.0.0:8775 --node-name cloud.example

All other settings are in the configuration file, with upstream's groups and options:
see docs/operating.md.";

/// Examples for `doctor`.
pub const DOCTOR: &str = "\
Examples:
  kilonova doctor --state-dir state
  kilonova doctor --config /etc/kilonova/kilonova.conf --strict --format json";

/// Examples for `config check`.
pub const CONFIG_CHECK: &str = "\
Examples:
  kilonova config check --nova-conf /etc/nova/nova.conf
  kilonova config check --nova-conf nova.conf --placement-conf placement.conf --cyborg-conf cyborg.conf
  kilonova config check --nova-conf /etc/nova/nova.conf --format json

A nova.conf without refused options is a configuration file for kilonova serve --config and for
kilonova-agent --config.";

/// Examples for `server explain`.
pub const EXPLAIN: &str = "\
Examples:
  kilonova server explain vm1
  kilonova server explain vm1 --os-cloud kilonova --format json";

/// Examples for `capacity`.
pub const CAPACITY: &str = "\
Examples:
  kilonova capacity
  kilonova capacity --flavor gpu.large --os-cloud kilonova --format json";

/// Examples for `rebalance`.
pub const REBALANCE: &str = "\
Examples:
  kilonova rebalance --plan --flavor gpu.large
  kilonova rebalance --apply --flavor gpu.large
  kilonova rebalance --plan --format json";

/// Examples for `host drain`.
pub const DRAIN: &str = "\
Examples:
  kilonova host drain host1
  kilonova host drain host1 --cold --parallel 8 --reason maintenance
  kilonova host drain host1 --no-wait
  kilonova host drain host1 --stop";

/// Examples for `host undrain`.
pub const UNDRAIN: &str = "\
Examples:
  kilonova host undrain host1";

/// Examples for `discover`.
pub const DISCOVER: &str = "\
Examples:
  kilonova discover
  kilonova discover --config /etc/kilonova/agent.conf --format json";

/// Examples for `node`.
pub const NODE: &str = "\
Examples:
  kilonova node enroll --host host1
  kilonova node list
  kilonova node revoke host1
  kilonova node --token-file state/node.token --nodes examples/nodes/demo.toml";

/// Examples for `node enroll`.
pub const ENROLL: &str = "\
Examples:
  kilonova node enroll
  kilonova node enroll --host host1 --valid 30m";

/// Examples for `node list`.
pub const LIST: &str = "\
Examples:
  kilonova node list --format json";

/// Examples for `node revoke`.
pub const REVOKE: &str = "\
Examples:
  kilonova node revoke host1";

/// Examples for `placement import`.
pub const IMPORT: &str = "\
Examples:
  kilonova placement import --cloud old --state-dir state
  kilonova placement import --from https://old.example/placement --token TOKEN";

/// Examples for `keys`.
pub const KEYS: &str = "\
Examples:
  kilonova keys list --state-dir state
  kilonova keys fernet-rotate --config /etc/kilonova/kilonova.conf";

/// Examples for `keys list`.
pub const KEYS_LIST: &str = "\
Examples:
  kilonova keys list --state-dir state --format json";

/// Examples for `keys fernet-rotate`.
pub const KEYS_FERNET_ROTATE: &str = "\
Examples:
  kilonova keys fernet-rotate --config /etc/kilonova/kilonova.conf";

/// Examples for `keys seal-add`.
pub const KEYS_SEAL_ADD: &str = "\
Examples:
  kilonova keys seal-add --config /etc/kilonova/kilonova.conf";

/// Examples for `keys seal-rotate`.
pub const KEYS_SEAL_ROTATE: &str = "\
Examples:
  kilonova keys seal-rotate --config /etc/kilonova/kilonova.conf";

/// Examples for `admin` and `admin password`.
pub const ADMIN: &str = "\
Examples:
  kilonova admin password --config /etc/kilonova/kilonova.conf
  kilonova admin password --state-dir state";

/// Examples for `ca`.
pub const CA: &str = "\
Examples:
  kilonova ca list --state-dir state
  kilonova ca rotate --config /etc/kilonova/kilonova.conf";

/// Examples for `ca list`.
pub const CA_LIST: &str = "\
Examples:
  kilonova ca list --state-dir state --format json";

/// Examples for `ca rotate`.
pub const CA_ROTATE: &str = "\
Examples:
  kilonova ca rotate --config /etc/kilonova/kilonova.conf";

/// Examples for `ca activate`.
pub const CA_ACTIVATE: &str = "\
Examples:
  kilonova ca activate --config /etc/kilonova/kilonova.conf --overlap 14d";

/// Examples for `ca retire`.
pub const CA_RETIRE: &str = "\
Examples:
  kilonova ca retire --config /etc/kilonova/kilonova.conf";

/// Examples for `ca cancel`.
pub const CA_CANCEL: &str = "\
Examples:
  kilonova ca cancel --config /etc/kilonova/kilonova.conf";

/// Examples for `ca export`.
pub const CA_EXPORT: &str = "\
Examples:
  kilonova ca export /root/authority --config /etc/kilonova/kilonova.conf";

/// Examples for `database` and `database copy`.
pub const DATABASE: &str = "\
Examples:
  kilonova database copy --from sqlite:////var/lib/kilonova/kilonova.db --to postgresql://kilonova@db1/kilonova
  kilonova database copy --from postgresql://kilonova@db1/kilonova --to sqlite:////root/copy.db --format json";

/// Examples for `completion`.
pub const COMPLETION: &str = "\
Examples:
  kilonova completion bash
  kilonova completion zsh
  kilonova completion fish

The Debian package installs them. By hand, for bash:
  kilonova completion bash > ~/.local/share/bash-completion/completions/kilonova";

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, Parser};

    use crate::cli::Arguments;

    fn each(command: &Command, found: &mut Vec<(String, String)>) {
        if command.get_name() == "help" {
            return;
        }
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        found.push((command.get_name().to_owned(), help));
        command.get_subcommands().for_each(|inner| each(inner, found));
    }

    #[test]
    fn every_command_has_valid_examples() {
        let mut found = Vec::new();
        each(&Arguments::command(), &mut found);
        let mut seen = 0;
        for (name, help) in found {
            let groups = ["server", "host", "placement"];
            let parts = name == "accelerators" || (name == "placement" && help.is_empty());
            let examples: Vec<&str> =
                help.lines().filter_map(|line| line.strip_prefix("  kilonova ")).collect();
            assert!(
                !examples.is_empty() || groups.contains(&&*name) || parts,
                "{name}: no example"
            );
            for example in examples.iter().filter(|line| !line.contains('>')) {
                let words = std::iter::once("kilonova").chain(example.split(' '));
                let read = Arguments::try_parse_from(words);
                assert!(
                    read.is_ok(),
                    "{example}: {}",
                    read.err().map_or_else(String::new, |e| e.to_string())
                );
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn help_of_serve_and_doctor_states_the_defaults() {
        let mut arguments = Arguments::command();
        for name in ["serve", "doctor"] {
            let command = arguments.find_subcommand_mut(name).expect("the command exists");
            for option in command.get_arguments().filter(|one| one.get_action().takes_values()) {
                let help = option.get_help().map(ToString::to_string).unwrap_or_default();
                let stated = help.contains("[default: ") || !option.get_default_values().is_empty();
                assert!(stated, "{name} --{}: {help}", option.get_id());
            }
        }
    }
}
