#!/bin/bash
#SBATCH --job-name=grade
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=02:00:00
#SBATCH --output=grade-%A-%a.log
# Grades a class on a cluster, from the project's folder:
#
#   sbatch --array=1-4 chapters/course/grading/slurm.sh SUBMISSIONS RESULTS SEED --exercises 03.1,03.2
#
# Each of the four tasks grades a quarter of the folders in SUBMISSIONS, one after the other, and builds once. SEED is
# a word of yours: it makes the hidden tests the same for all. What follows it goes to chapters/course/grade.
# RESULTS gets NAME.json for each submission and table-N.csv for each task.
set -euo pipefail
if [ $# -lt 3 ] || [ ! -d "$1" ]; then
  echo "error: slurm.sh: expected a folder of submissions, a folder for results and a seed, given ${*:-nothing}" >&2
  exit 64
fi
root=${SLURM_SUBMIT_DIR:-.}
if [ ! -x "$root/chapters/course/grade" ]; then
  echo "error: slurm.sh: expected that sbatch is called in the project's folder, given $root" >&2
  exit 65
fi
submissions=$1 results=$2 seed=$3
shift 3

task=$((${SLURM_ARRAY_TASK_ID:-1} - ${SLURM_ARRAY_TASK_MIN:-1}))
mine=() number=0
for folder in "$submissions"/*/; do
  if [ $((number % ${SLURM_ARRAY_TASK_COUNT:-1})) -eq $task ]; then
    mine+=("$folder")
  fi
  number=$((number + 1))
done
if [ ${#mine[@]} -eq 0 ]; then
  exit 0
fi

mkdir -p "$results"
work=$(mktemp -d) # on the node's own disk; two graders must not share one
trap 'rm -rf "$work"' EXIT
NO_INSTALL=1 "$root/chapters/course/grade" --work "$work" --seed "$seed" --json "$results/%s.json" \
  --into "$results/table-$task.csv" "$@" "${mine[@]}"
