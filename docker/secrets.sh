#!/bin/sh
# The secrets of the compose file, made once into its volume: an authority and a certificate of the
# services for TLS, their password, and that of PostgreSQL. For a machine of one's own, not for
# production: there secrets come from where an organisation keeps them.
set -eu
place=${1:?a directory}
owner=${2:?USER:GROUP that reads them}
[ ! -e "$place/done" ] || exit 0
cd "$place"
names=DNS:localhost,IP:127.0.0.1
for service in coordinator replica compaction storage materialize; do
  names=$names,DNS:$service
done
openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=slackwater compose" \
  -keyout authority.key -out authority.pem 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj /CN=slackwater -keyout key.pem -out request.pem 2>/dev/null
printf 'subjectAltName=%s\n' "$names" >extensions
openssl x509 -req -in request.pem -CA authority.pem -CAkey authority.key -CAcreateserial \
  -days 3650 -extfile extensions -out certificate.pem 2>/dev/null
openssl rand -hex 24 >password
openssl rand -hex 24 >postgres
rm -f request.pem extensions authority.key authority.srl
chown "$owner" authority.pem certificate.pem key.pem password postgres
chmod 440 authority.pem certificate.pem key.pem password postgres
touch done
