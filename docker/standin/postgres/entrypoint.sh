#!/bin/bash
# The first start makes the cluster, the user and the database; later ones use what is there.
set -euo pipefail
[ "${1:-}" = postgres ] || exec "$@"
user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}

if [ "$(id -u)" = 0 ]; then # the file may be root's alone
  [ -z "${POSTGRES_PASSWORD_FILE:-}" ] || POSTGRES_PASSWORD=$(<"$POSTGRES_PASSWORD_FILE")
  export POSTGRES_PASSWORD
  install -d -o postgres -g postgres -m 700 "$PGDATA"
  install -d -o postgres -g postgres -m 775 /var/run/postgresql
  exec setpriv --reuid postgres --regid postgres --init-groups /bin/bash "$0" "$@"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  : "${POSTGRES_PASSWORD:?a password for the first start}"
  initdb --pgdata "$PGDATA" --username "$user" --encoding UTF8 --locale C.UTF-8 \
    --auth-local trust --auth-host scram-sha-256 \
    --pwfile <(echo "$POSTGRES_PASSWORD") >/dev/null
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
  pg_ctl --silent --wait --pgdata "$PGDATA" --options "-c listen_addresses=''" start >/dev/null
  [ "$database" = postgres ] || createdb --username "$user" "$database"
  pg_ctl --silent --wait --pgdata "$PGDATA" --mode fast stop
  echo "PostgreSQL init process complete; ready for start up."
fi
shift
exec postgres -c listen_addresses='*' "$@"
