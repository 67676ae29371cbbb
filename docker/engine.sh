#!/usr/bin/env bash
# A container engine, and the images of the end-to-end tests: whatever is missing is made.
#
#   docker/engine.sh start     the engine, if none answers (root, on Debian)
#   docker/engine.sh images    the images; prints E2E_*_IMAGE=NAME lines, all else on stderr
#   docker/engine.sh earlier   the same for the image of an earlier commit, from git
#
# Images that cannot be pulled are replaced by stand-ins of Debian's packages, from the mirror that
# this machine's apt uses. A second run changes nothing and takes a second.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
python=${PYTHON:-$root/.venv/bin/python}
suite=${E2E_SUITE:-trixie} # Debian's; the stand-ins are of it
log=${E2E_ENGINE_LOG:-/var/log/slackwater-engine.log}
local=slackwater-local
export DEBIAN_FRONTEND=noninteractive DOCKER_CLI_HINTS=false

say() { echo "engine: $*" >&2; }
answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
is_there() { docker image inspect "$1" >/dev/null 2>&1; }

packages() { # install what is missing
  local missing=() name
  for name; do dpkg -s "$name" >/dev/null 2>&1 || missing+=("$name"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || { say "cannot install ${missing[*]}"; return 1; }
  apt-get -qq -o DPkg::Lock::Timeout=300 update >&2
  apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 --no-install-recommends \
    install "${missing[@]}" >/dev/null
}

forget_ended() { # files of an engine that was killed name processes that are others now
  local file
  for file in /var/run/docker.pid /var/run/docker/containerd/containerd.pid; do
    [ -e "$file" ] || continue
    grep -qsE '(dockerd|containerd)' "/proc/$(<"$file")/cmdline" || rm -f "$file"
  done
}

daemon() { # in a session of its own, so that it outlives whoever started it
  forget_ended
  setsid nohup dockerd --host=unix:///var/run/docker.sock "$@" >"$log" 2>&1 </dev/null 9>&- &
  local process=$! tries
  for tries in $(seq 300); do
    answers && return 0
    kill -0 "$process" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

start() {
  answers && return 0
  [ "$(id -u)" = 0 ] || { say "no engine answers, and only root can start one"; return 1; }
  packages docker.io iptables || return 1
  daemon || daemon --storage-driver=vfs || { tail -n 20 "$log" >&2; return 1; }
  say "dockerd $(docker info --format '{{.ServerVersion}}, {{.Driver}}') runs, its log is $log"
}

mirror() { # what apt uses for the release that this machine is
  local release
  release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Component: main" \
    "Codename: $release" | head -n 1
}

debian() { # NAME PACKAGES: an image of Debian with these packages
  is_there "$1" && return 0
  packages mmdebstrap
  say "makes $1 of $2"
  mmdebstrap --quiet --mode=root --variant=apt --skip=check/empty --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --aptopt='APT::Install-Recommends "false"' \
    --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' \
    --essential-hook='mkdir -p "$1/usr/share/man/man1" "$1/etc/postgresql-common"' \
    --essential-hook='echo "create_main_cluster = false" \
      >"$1/etc/postgresql-common/createcluster.conf"' \
    --customize-hook='copy-in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin' \
    --include="$2" "$suite" - "$(mirror)" 9>&- | docker import - "$1" >/dev/null
}

build() { # NAME CONTEXT [ARGUMENTS...]
  local name=$1 context=$2
  shift 2
  DOCKER_BUILDKIT=0 docker build --quiet --tag "$name" "$@" "$context" 2>&1 >/dev/null |
    grep -v -e DEPRECATED -e BuildKit -e environment-variable -e "^$" >&2 || [ "${PIPESTATUS[0]}" = 0 ]
}

pulled() { is_there "$1" || timeout 120 docker pull --quiet "$1" >/dev/null 2>&1; }

kafka_jars() {
  (cd "$root" && "$python" -c "
from streams.files import user_cache
from streams.kafka.embedded.jars import kafka_jars
print(kafka_jars(user_cache()))")
}

kafka() {
  local public=apache/kafka:4.2.0 stand_in=$local/kafka:4.2.0 scratch jars
  pulled $public && { echo $public; return 0; }
  if ! is_there $stand_in; then
    debian "$local/services:$suite" "openjdk-21-jre-headless,postgresql,ca-certificates"
    jars=$(kafka_jars) || return 1
    scratch=$(mktemp -d)
    cp -r "$here/standin/kafka/." "$scratch"
    cp -rL "$jars" "$scratch/libs"
    build $stand_in "$scratch" --build-arg "BASE=$local/services:$suite"
    rm -rf "$scratch"
  fi
  echo $stand_in
}

postgres() {
  local public=postgres:17 stand_in=$local/postgres:17
  pulled $public && { echo $public; return 0; }
  if ! is_there $stand_in; then
    debian "$local/services:$suite" "openjdk-21-jre-headless,postgresql,ca-certificates"
    build $stand_in "$here/standin/postgres" --build-arg "BASE=$local/services:$suite"
  fi
  echo $stand_in
}

prometheus() {
  local public=prom/prometheus:v3.7.3 stand_in=$local/prometheus:$suite
  pulled $public && { echo $public; return 0; }
  if ! is_there "$stand_in"; then
    debian "$local/prometheus-package:$suite" "prometheus,ca-certificates"
    build "$stand_in" "$here/standin/prometheus" --build-arg "BASE=$local/prometheus-package:$suite"
  fi
  echo "$stand_in"
}

python_base() {
  local public=python:3.13-slim-trixie
  pulled $public && { echo $public; return 0; }
  debian "$local/python:$suite" "python3,python3-venv,ca-certificates,openssl"
  echo "$local/python:$suite"
}

earlier() { # of the commit E2E_EARLIER, by default the first one that has an image
  local commit=${E2E_EARLIER:-} name=${E2E_EARLIER_IMAGE:-slackwater:e2e-earlier} scratch base
  [ -n "$commit" ] || commit=$(git -C "$root" log --diff-filter=A --format=%H -- docker/Dockerfile | tail -n 1)
  [ -n "$commit" ] || { say "no earlier commit is known here"; return 0; }
  base=$(python_base)
  scratch=$(mktemp -d)
  git -C "$root" archive "$commit" | tar -x -C "$scratch"
  say "makes $name of $commit"
  build "$name" "$scratch" --file "$scratch/docker/Dockerfile" --build-arg "BASE=$base"
  rm -rf "$scratch"
  echo "E2E_EARLIER_IMAGE=$name"
}

clock() { # the library by which a container has a clock of its own; none is no failure
  local library=$root/.venv/e2e-clock.so
  command -v cc >/dev/null || packages gcc libc6-dev || return 0
  cc -O2 -shared -fPIC -o "$library" "$here/standin/clock.c" -ldl && echo "E2E_CLOCK=$library"
}

images() {
  local base
  base=$(python_base)
  echo "E2E_KAFKA_IMAGE=$(kafka)"
  echo "E2E_POSTGRES_IMAGE=$(postgres)"
  echo "E2E_PROMETHEUS_IMAGE=$(prometheus)"
  build "${E2E_SLACKWATER_IMAGE:=slackwater:e2e}" "$root" --file "$here/Dockerfile" --build-arg "BASE=$base"
  echo "E2E_SLACKWATER_IMAGE=$E2E_SLACKWATER_IMAGE"
  clock
}

exec 9>"${TMPDIR:-/tmp}/slackwater-engine.lock"
flock 9
case "${1:-}" in
  start) start ;;
  images) images ;;
  earlier) earlier ;;
  *) say "expected start, images or earlier"; exit 2 ;;
esac
