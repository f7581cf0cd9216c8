#!/usr/bin/env bash
# Start Dask's scheduler here, and Dask workers in containers of YARN, by Hadoop's own DistributedShell:
#   bash on_yarn.sh 2 &
#   singa-dask run JOB.yaml --cluster allreduce --scheduler-file scheduler.json --wait 300
# The same Python with singa-dask has to be at the same path on all nodes. Ctrl-C ends the workers, too.
set -euo pipefail
containers=${1:?how many containers} threads=${2:-2} megabytes=${3:-4096}
python=$(command -v python3)
shell=$(ls "$HADOOP_HOME"/share/hadoop/yarn/hadoop-yarn-applications-distributedshell-[0-9]*.jar | grep -v sources)

"$python" -m dask scheduler --port 8786 --scheduler-file scheduler.json &
trap 'kill %1' EXIT
worker="$python -m dask worker tcp://$(hostname -f):8786 --nthreads $threads --no-nanny --death-timeout 60"
yarn jar "$shell" org.apache.hadoop.yarn.applications.distributedshell.Client -jar "$shell" -appname singa-dask \
  -num_containers "$containers" -container_vcores "$threads" -container_memory "$megabytes" \
  -shell_command "$worker --memory-limit 0" -timeout 86400000
