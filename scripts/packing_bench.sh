#!/usr/bin/env bash
# The packing tables of docs/performance.md: replays of the workloads of a trace in the form of Alibaba's openb
# trace, ten seeds each, then churn on half and on a quarter of the hosts, then MIG profiles on cards.
#
#   scripts/packing_bench.sh BENCH TRACES [WORKLOAD...]       (default: every workload in TRACES; churn: three)
set -euo pipefail
bench=$1 traces=$2
shift 2
[ -f "$traces/openb_node_list_gpu_node.csv" ] \
    || { echo "packing_bench: no trace in $traces; TRACES names a folder with openb_node_list_gpu_node.csv" >&2; exit 2; }
files=() churn=()
if [ $# -eq 0 ]; then
    files=("$traces"/openb_pod_list_*.csv)
    set -- default multigpu20 gpushare100
else
    for name in "$@"; do files+=("$traces/openb_pod_list_$name.csv"); done
fi
for name in "$@"; do churn+=("$traces/openb_pod_list_$name.csv"); done
published=()
[ ! -f "$traces/published.csv" ] || published=(--published "$traces/published.csv")
"$bench" packing --hosts "$traces/openb_node_list_gpu_node.csv" "${published[@]}" "${files[@]}"
for part in 2 4; do
    "$bench" packing --hosts "$traces/openb_node_list_gpu_node.csv" --churn "$part" --seeds 6 "${churn[@]}"
done
"$bench" packing --mig 400 --seeds 3
