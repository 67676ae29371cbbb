#!/bin/bash
# A broker of the KAFKA_* variables: KAFKA_NODE_ID is node.id; __ stands for _ and ___ for -.
set -euo pipefail
home=/opt/kafka
properties=$home/config/server.properties
data=${KAFKA_LOG_DIRS:-/var/lib/kafka/data}

settings() {
  local name
  while IFS= read -r name; do
    case $name in KAFKA_HEAP_OPTS | KAFKA_OPTS | KAFKA_LOG_DIRS) continue ;; esac
    local key=${name#KAFKA_}
    key=${key//___/-}
    key=${key//__/%}
    key=${key//_/.}
    key=${key//%/_}
    echo "${key,,}=${!name}"
  done < <(compgen -e KAFKA_)
  echo "log.dirs=$data"
}

settings >"$properties"
java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx128m -cp "$home/libs/*" kafka.tools.StorageTool \
  format --ignore-formatted --cluster-id "${CLUSTER_ID:-c2xhY2t3YXRlci1lMmUtMQ}" \
  --config "$properties" >/dev/null
# shellcheck disable=SC2086  options, each a word
exec java ${KAFKA_HEAP_OPTS:--Xms256m -Xmx512m} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
  -Dlog4j2.configurationFile=$home/log4j2.yaml ${KAFKA_OPTS:-} -cp "$home/libs/*" \
  kafka.Kafka "$properties"
